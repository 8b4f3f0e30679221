"""Collective benchmarks: run, read from other tools, fitted to what prediction needs."""
