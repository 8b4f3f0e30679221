"""Emulates hosts on this machine and measures the links between them.

This package runs on compute nodes, so it imports no table or chart library.
"""
