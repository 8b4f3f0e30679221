"""Emulated hosts on this machine, and what their links really give.

Runs on compute nodes: imports no table and no chart library.
"""
