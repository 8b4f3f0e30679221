"""What a calibration reads: rows of tables, engine runs, collective benchmarks, profiler traces."""
