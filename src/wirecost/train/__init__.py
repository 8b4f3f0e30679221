"""Trains real models and measures every iteration: models, parallelism strategies, the loop, phase timers.

This package runs on compute nodes, so it imports no table or chart library.
"""
