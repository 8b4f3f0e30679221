"""What the cost model says about workloads, studies and tables, and how far off it is."""
