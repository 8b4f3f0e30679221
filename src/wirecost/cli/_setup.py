"""The options that say what is predicted, shared by `predict` and `need`, and the Setup that they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup
    from wirecost.spec import Plan as PlanSpec

WORKLOAD = typer.Argument(
    help="Workload preset, YAML file, or a model's Hugging Face config.json.", show_default=False
)
CLUSTER = typer.Option("--cluster", "-c", help="Cluster preset or YAML file.", show_default=False)
Plan = Annotated[str | None, typer.Option("--plan", "-p", help="Plan preset or YAML file.")]
Stack = Annotated[
    str | None,
    typer.Option(
        "--stack",
        "-s",
        help="Software stack preset or YAML file; default megatron-core, or fsdp-flash without TP and PP.",
    ),
]
Gpus = Annotated[int | None, typer.Option("--gpus", "-n", help="GPUs; default all of the cluster.")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", "-b", help="Sequences of one micro-batch.")]
GlobalBatch = Annotated[int | None, typer.Option("--global-batch", "-B", help="Sequences of one iteration.")]
TensorParallel = Annotated[int | None, typer.Option("--tensor-parallel", "--tp", help="Tensor-parallel degree.")]
PipelineParallel = Annotated[int | None, typer.Option("--pipeline-parallel", "--pp", help="Pipeline stages.")]
VirtualStages = Annotated[int | None, typer.Option("--virtual-stages", "--vpp", help="Chunks of each stage.")]
ContextParallel = Annotated[
    int | None, typer.Option("--context-parallel", "--cp", help="Context-parallel degree.")
]
ExpertParallel = Annotated[int | None, typer.Option("--expert-parallel", "--ep", help="Expert-parallel degree.")]
DataParallel = Annotated[
    str | None, typer.Option("--data-parallel", help="all_reduce, ddp, zero1, zero2 or zero3.")
]
ShardingGroup = Annotated[
    str | None, typer.Option("--sharding-group", help="all, or node: shards inside nodes, replicas between them.")
]
SequenceParallel = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel", help="Split what lies between tensor-parallel regions."
    ),
]
PipelineSchedule = Annotated[
    str | None, typer.Option("--pipeline-schedule", help="gpipe, 1f1b or interleaved (with --vpp).")
]
Recompute = Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")]
Precision = Annotated[str | None, typer.Option("--precision", help="fp32, bf16 or fp16.")]
MatrixPrecision = Annotated[
    str | None, typer.Option("--matrix-precision", help="fp8 or fp4 for the layers' products.")
]
SequenceLength = Annotated[int | None, typer.Option("--sequence-length", help="Tokens of a sequence.")]
Bandwidth = Annotated[
    str | None, typer.Option("--bandwidth", help="Another rate of each node's NICs together, like '400 Gb/s'.")
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="What `wirecost calibrate --save` or --out wrote.",
    ),
]


@dataclass
class Job:
    """The options of one job; `degrees` are keys of Plan (None where the option isn't given)."""

    workload: str
    cluster: str | None
    plan: str | None
    stack: str | None
    gpus: int | None
    micro_batch: int
    global_batch: int | None
    bandwidth: str | None
    sequence_length: int | None
    calibration: Path | None
    degrees: dict[str, Any]

    def setup(self) -> Setup:
        """Returns the checked Setup that the options mean."""
        import os

        # numpy's linear algebra starts a thread for each core when it is imported, and nothing here uses it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from wirecost.costmodel.setup import setup
        from wirecost.errors import SpecError
        from wirecost.spec import load_spec, with_bandwidth, with_nodes

        plan = _plan(self.plan, {key: value for key, value in self.degrees.items() if value is not None})
        stack = load_spec("stack", self.stack) if self.stack else None
        fitted = None
        if self.calibration is not None:
            from wirecost.calibration.saved import read

            fitted = read(self.calibration)
        if fitted is not None and fitted.clusters:
            cluster, stack = fitted.chosen(self.cluster, plan.precision, stack, str(self.calibration))
        elif self.cluster is None:
            raise SpecError("--cluster says where it would run; a preset (`wirecost presets`) or a YAML file")
        else:
            cluster = load_spec("cluster", self.cluster)
        checked = setup(
            load_spec("workload", self.workload, sequence_length=self.sequence_length),
            plan,
            with_nodes(with_bandwidth(cluster, self.bandwidth), self.gpus),
            stack=stack,
            gpus=self.gpus,
            micro_batch=self.micro_batch,
            global_batch=self.global_batch,
        )
        return checked if fitted is None else fitted.applied(checked)


def _plan(plan: str | None, degrees: dict[str, Any]) -> PlanSpec:
    """Returns the plan that is named, or the one that the options alone mean."""
    from wirecost.spec import Plan as PlanSpec
    from wirecost.spec import load_spec, validate

    if plan is not None:
        return load_spec("plan", plan, **degrees)
    several = any(degrees.get(key, 1) > 1 for key in ("tensor_parallel", "pipeline_parallel"))
    base = {"name": "options", "precision": "bf16", "data_parallel": "zero1" if several else "zero3"}
    return validate(PlanSpec, {**base, **degrees}, "options")
