"""The options that say what is predicted, shared by `predict` and `need`, and the Setup that they mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wirecost.model.setup import Setup

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
        help="Fitted values that `wirecost calibrate --save` wrote, or the directory of its --out.",
    ),
]


def build(
    workload: str,
    cluster: str | None,
    *,
    plan: str | None,
    stack: str | None,
    gpus: int | None,
    micro_batch: int,
    global_batch: int | None,
    bandwidth: str | None,
    sequence_length: int | None,
    calibration: Path | None,
    **degrees: Any,
) -> Setup:
    """The checked Setup that the options mean; `degrees` are keys of Plan."""
    from wirecost.errors import SpecError
    from wirecost.model.load import one, with_bandwidth, with_nodes
    from wirecost.model.setup import setup
    from wirecost.spec import Plan as PlanSpec
    from wirecost.spec import validate

    given = {key: value for key, value in degrees.items() if value is not None}
    folder = calibration if calibration is not None and calibration.is_dir() else None
    if plan is not None:
        made_plan = one("plan", plan, **given)
    else:
        many = any(given.get(key, 1) > 1 for key in ("tensor_parallel", "pipeline_parallel"))
        base = {"name": "options", "precision": "bf16", "data_parallel": "zero1" if many else "zero3"}
        made_plan = validate(PlanSpec, {**base, **given}, "options")
    made_stack = one("stack", stack) if stack else None
    if folder is not None:
        from wirecost.calibration.assemble import chosen

        made_cluster, made_stack = chosen(folder, cluster, made_plan.precision, made_stack)
    elif cluster is None:
        raise SpecError("--cluster says where it would run; a preset (`wirecost presets`) or a YAML file")
    else:
        made_cluster = one("cluster", cluster)
    made = setup(
        one("workload", workload, sequence_length=sequence_length),
        made_plan,
        with_nodes(with_bandwidth(made_cluster, bandwidth), gpus),
        stack=made_stack,
        gpus=gpus,
        micro_batch=micro_batch,
        global_batch=global_batch,
    )
    if calibration is None or folder is not None:
        return made
    from wirecost.model.store import apply_calibration

    return apply_calibration(made, calibration)
