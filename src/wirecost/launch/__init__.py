"""Starts, isolates and watches the processes of a distributed job, and ends them with all their descendants.

This package runs on compute nodes, so it imports no table or chart library.
"""
