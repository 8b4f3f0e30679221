"""Runs training commands unchanged: launch, iteration boundaries by a hook, and what the ranks recorded.

This package runs on compute nodes, so it imports no table or chart library.
"""
