"""Checks whether the engine can train a workload, a plan or an experiment, before anything is started.

Each check returns None, or a one-line message that says why not and what would be right. None needs PyTorch.
"""

from wirecost.train.checks.plans import check_combination, check_experiment, check_plan
from wirecost.train.checks.vocabulary import check_vocabulary
from wirecost.train.checks.workloads import check_workload

__all__ = ["check_combination", "check_experiment", "check_plan", "check_vocabulary", "check_workload"]
