"""Searches the plans with which a model can be trained on a cluster, and explains what it chose."""
