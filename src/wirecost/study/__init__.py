"""Studies: run a matrix of experiments, each in fresh processes, and keep what came out."""

from wirecost.study.runner import Progress, run_study
from wirecost.study.store import Result, Status, Store

__all__ = ["Progress", "Result", "Status", "Store", "run_study"]
