"""Fits properties of GPUs, links and software stacks to measurements."""
