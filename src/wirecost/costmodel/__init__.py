"""The cost model: formulas for the time and memory of one iteration, and nothing else."""
