"""Trains a model with Megatron-Core on random tokens: the engine of `engine: megatron`.

`python -m wirecost.megatron SETTINGS` runs in each rank, as a command that `wirecost run` measures. Megatron-Core
is the optional extra `megatron`. This package runs on compute nodes, so it imports no table or chart library.
"""
