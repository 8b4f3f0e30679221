"""Real training, measured: models, one file for each parallelism, the loop, phase timers.

Runs on compute nodes: imports no table and no chart library.
"""
