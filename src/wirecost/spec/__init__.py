"""Specifications as plain validated data: Workload, Plan, Cluster, Network, Experiment, Study."""

from wirecost.spec.cluster import GPU, Cluster, Cores, Link, gpu
from wirecost.spec.experiment import Data, Device, Experiment, LossScaling, Optimizer, Periodic, Scaling
from wirecost.spec.network import Emulation, Native, Network
from wirecost.spec.plan import (
    DataParallel,
    GradientTraffic,
    MatrixPrecision,
    PipelineSchedule,
    Plan,
    Precision,
    RankOrder,
    Recompute,
)
from wirecost.spec.stack import Stack
from wirecost.spec.study import ScalingRule, Study
from wirecost.spec.workload import Family, MixtureOfExperts, Workload
from wirecost.spec.yaml import load, parse_yaml, read_yaml, to_yaml, validate

__all__ = [
    "GPU",
    "Cluster",
    "Cores",
    "Data",
    "DataParallel",
    "Device",
    "Emulation",
    "Experiment",
    "Family",
    "GradientTraffic",
    "Link",
    "LossScaling",
    "MatrixPrecision",
    "MixtureOfExperts",
    "Native",
    "Network",
    "Optimizer",
    "Periodic",
    "PipelineSchedule",
    "Plan",
    "Precision",
    "RankOrder",
    "Recompute",
    "Scaling",
    "ScalingRule",
    "Stack",
    "Study",
    "Workload",
    "gpu",
    "load",
    "parse_yaml",
    "read_yaml",
    "to_yaml",
    "validate",
]
