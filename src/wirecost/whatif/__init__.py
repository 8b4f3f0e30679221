"""What-if questions about a job, answered from its profiler traces: replay, change, replay again."""
