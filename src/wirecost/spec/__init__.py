"""Specifications as plain validated data: Workload, Plan, Cluster, Network, Experiment, Study."""

from wirecost.spec.batch_search import MOST_TRIALS, BatchSearch
from wirecost.spec.cluster import GPU, Cluster, Link, SharedCores, gpu
from wirecost.spec.experiment import Data, Device, Experiment, LossScaling, Optimizer, Periodic, Scaling
from wirecost.spec.job import OWN_PLAN, AnyExperiment, Job, JobExperiment, plan_name, workload_name
from wirecost.spec.loading import load_spec, stack_named, with_bandwidth, with_nodes
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
from wirecost.spec.provenance import Provenance
from wirecost.spec.scaling import ScalingRule
from wirecost.spec.stack import Stack
from wirecost.spec.study import Study
from wirecost.spec.testbed import Testbed
from wirecost.spec.workload import Family, LatentAttention, MixtureOfExperts, Workload
from wirecost.spec.yaml import load, parse_yaml, read_yaml, to_yaml, validate

__all__ = [
    "GPU",
    "MOST_TRIALS",
    "OWN_PLAN",
    "AnyExperiment",
    "BatchSearch",
    "Cluster",
    "Data",
    "DataParallel",
    "Device",
    "Emulation",
    "Experiment",
    "Family",
    "GradientTraffic",
    "Job",
    "JobExperiment",
    "LatentAttention",
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
    "Provenance",
    "RankOrder",
    "Recompute",
    "Scaling",
    "ScalingRule",
    "SharedCores",
    "Stack",
    "Study",
    "Testbed",
    "Workload",
    "gpu",
    "load",
    "load_spec",
    "parse_yaml",
    "plan_name",
    "read_yaml",
    "stack_named",
    "to_yaml",
    "validate",
    "with_bandwidth",
    "with_nodes",
    "workload_name",
]
