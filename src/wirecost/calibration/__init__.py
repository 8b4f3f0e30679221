"""From what is at hand (one node's runs, benchmarks, traces) to a cluster and a software stack that predict."""
