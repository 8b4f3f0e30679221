"""Predicts workloads, studies and tables with the cost model, and validates the predictions."""
