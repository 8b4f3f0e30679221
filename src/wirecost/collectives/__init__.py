"""Collective benchmarks: running them, reading other tools' results, fitting the costs that prediction needs."""
