"""Studies: a matrix of experiments, each run in fresh processes, and the store of their results."""

from wirecost.study.progress import Progress
from wirecost.study.runner import Again, run_study
from wirecost.study.store import Result, Status, Store

__all__ = ["Again", "Progress", "Result", "Status", "Store", "run_study"]
