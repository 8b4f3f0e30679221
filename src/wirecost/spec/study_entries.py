"""The entries of a study's lists: presets by name, or written out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag

from wirecost.spec.job import Job
from wirecost.spec.megatron import MegatronJob, is_megatron
from wirecost.spec.network import Network
from wirecost.spec.plan import Plan
from wirecost.spec.presets import named
from wirecost.spec.workload import Workload


def _kind_of_workload(value: Any) -> str:
    """Returns the tag of a workload's kind. The steps of a place that begin with `function-` aren't shown to
    users."""
    if isinstance(value, MegatronJob) or is_megatron(value):
        return "function-megatron"
    if isinstance(value, Job) or (isinstance(value, dict) and "command" in value):
        return "function-job"
    return "function-model"


WorkloadEntry = Annotated[
    Annotated[Workload, BeforeValidator(lambda v: named("workload", v)), Tag("function-model")]
    | Annotated[Job, Tag("function-job")]
    | Annotated[MegatronJob, AfterValidator(MegatronJob.as_job), Tag("function-megatron")],
    Discriminator(_kind_of_workload),
]
"""A model that wirecost trains, a command that is started unchanged, or a model for Megatron-Core, which becomes
its command."""
NetworkEntry = Annotated[Network, BeforeValidator(lambda v: named("network", v))]
PlanEntry = Annotated[Plan, BeforeValidator(lambda v: named("plan", v))]
