"""What to run, as plain validated data: Workload, Plan, Cluster, Fabric, Experiment, Study."""

from wirecost.spec.cluster import GPU, Cluster, Link
from wirecost.spec.experiment import Data, Device, Experiment, Optimizer, Scaling
from wirecost.spec.fabric import Emulation, Fabric, Native
from wirecost.spec.plan import DataParallel, PipelineSchedule, Plan, Precision, Recompute
from wirecost.spec.study import ScalingRule, Study
from wirecost.spec.workload import Family, MixtureOfExperts, Workload
from wirecost.spec.yaml import load, parse_yaml, to_yaml, validate

__all__ = [
    "GPU",
    "Cluster",
    "Data",
    "DataParallel",
    "Device",
    "Emulation",
    "Experiment",
    "Fabric",
    "Family",
    "Link",
    "MixtureOfExperts",
    "Native",
    "Optimizer",
    "PipelineSchedule",
    "Plan",
    "Precision",
    "Recompute",
    "Scaling",
    "ScalingRule",
    "Study",
    "Workload",
    "load",
    "parse_yaml",
    "to_yaml",
    "validate",
]
