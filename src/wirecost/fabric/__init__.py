"""The network under a job: which one was used, what a machine offers, emulated hosts."""
