"""Watches communication inside a running job: a line and scalars every few iterations, at little cost.

This package runs on compute nodes, so it imports no table or chart library.
"""
