"""The description of a job to predict or plan, and its conversion to a checked setup."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict, TypeVar

from pydantic import BaseModel

from wirecost.calibration.saved import read
from wirecost.costmodel.setup import Setup, default_data_parallel, default_stack, setup
from wirecost.errors import SpecError, one_of
from wirecost.spec import (
    Cluster,
    MatrixPrecision,
    Plan,
    Precision,
    Recompute,
    Stack,
    Workload,
    load_spec,
    stack_named,
    validate,
    with_bandwidth,
    with_nodes,
)
from wirecost.spec.plan import PLAN_OF_OPTIONS
from wirecost.spec.presets import INLINE

M = TypeVar("M", bound=BaseModel)


class Degrees(TypedDict, total=False):
    """Keys of a plan that a job sets. They override those of the plan that it names.

    Attributes:
        data_parallel: `all_reduce`, `ddp`, `zero1`, `zero2` or `zero3`.
        sharding_group: `all`, `node` for shards inside nodes and replicas between them, or `hpz` for a second copy
            of the parameters in each node.
        lora_rank: rank of the adapters that are trained instead of the parameters.
        tensor_parallel, pipeline_parallel, context_parallel, expert_parallel: degrees in ranks.
        virtual_stages: number of chunks of each pipeline stage.
        pipeline_schedule: `gpipe`, `1f1b`, `interleaved`, `zb-h1`, `zb-h2` or `dualpipe`.
        context_communication: `p2p` (a ring) or `a2a` (Ulysses).
        sequence_parallel: whether activations between tensor-parallel regions are split over their ranks.
        recompute: `none`, `selective` or `full`.
        precision: `fp32`, `bf16` or `fp16`.
        tensor_overlap: whether collectives of tensor parallelism run under the products beside them.
        matrix_precision: `fp8`, `fp8-blockwise`, `mxfp8`, `nvfp4` or `fp4` for the matrix products of the layers.
    """

    data_parallel: str | None
    sharding_group: str | None
    lora_rank: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    context_parallel: int | None
    expert_parallel: int | None
    virtual_stages: int | None
    pipeline_schedule: str | None
    context_communication: str | None
    sequence_parallel: bool | None
    tensor_overlap: bool | None
    recompute: str | None
    precision: str | None
    matrix_precision: str | None


SHORT_NAMES = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
}
"""Names of options as on the command line, which are accepted too."""


class JobOptions(Degrees, total=False):
    """The options of a job except its workload. None and a missing key mean the default.

    Attributes:
        cluster: a preset's name, a YAML file, YAML in braces, or a Cluster. It may be missing if the calibration
            has one.
        plan: a preset's name, a YAML file, or a Plan. Without one, the degrees alone make the plan: BF16
            (FP16 on GPUs without it), ZeRO-3, or ZeRO-1 with tensor or pipeline parallelism, and the stack's
            sequence parallelism and recomputation.
        stack: a preset's name, a YAML file, or a Stack. The default is megatron-core with tensor, pipeline or
            context parallelism, and fsdp-flash without; generic on TPUs, Gaudi, Trainium and Ascend.
        gpus: number of GPUs. The default is all of the cluster.
        micro_batch: number of sequences in a micro-batch. The default is 1.
        global_batch: number of sequences in an iteration. The default is one micro-batch for each data-parallel
            rank, or four for each stage of a pipeline.
        sequence_length: number of tokens in a sequence. The default is the workload's.
        bandwidth: rate of all NICs of a node together in one direction, as `400 Gb/s` or in bits per second.
        calibration: path of the output of `wirecost calibrate --save` or `--out`.
    """

    cluster: str | Path | Cluster | None
    plan: str | Path | Plan | None
    stack: str | Path | Stack | None
    gpus: int | None
    micro_batch: int | None
    global_batch: int | None
    sequence_length: int | None
    bandwidth: str | float | None
    calibration: str | Path | None


def full_names(options: JobOptions) -> JobOptions:
    """Returns options with the full names of those that short names stand for.

    Raises:
        SpecError: for an unknown option that has a value.
    """
    full = {SHORT_NAMES.get(key, key): value for key, value in options.items()}
    for key, value in full.items():
        if value is not None and key not in JobOptions.__annotations__:
            raise SpecError(one_of("option", key, JobOptions.__annotations__))
    return JobOptions(**full)  # type: ignore[typeddict-item]


def setup_of(workload: str | Path | Workload, options: JobOptions) -> Setup:
    """Returns the checked setup that a workload and options describe.

    Raises:
        SpecError: for an unknown option or name, a file that can't be read, or values that are inconsistent.
    """
    options = full_names(options)
    given = {key: value for key, value in options.items() if value is not None}
    degrees = {key: value for key, value in given.items() if key in Degrees.__annotations__}
    plan = _plan(options.get("plan"), degrees)
    stack = _spec("stack", Stack, options.get("stack"))
    calibration = options.get("calibration")
    fitted = read(Path(calibration)) if calibration is not None else None
    cluster = options.get("cluster")
    if fitted is not None and fitted.clusters and not isinstance(cluster, Cluster):
        named = str(cluster) if cluster is not None else None
        chosen, stack = fitted.chosen(named, plan.precision, stack, str(calibration))
    else:
        if fitted is not None and stack is None:
            stack = _spec("stack", Stack, fitted.fitted_stack(str(calibration)))
        given_cluster = _spec("cluster", Cluster, cluster)
        if given_cluster is None:
            raise SpecError("a cluster is needed: a preset (`wirecost presets clusters`) or a YAML file")
        chosen = given_cluster
    if options.get("plan") is None:
        plan = _with_defaults(plan, degrees, chosen, stack)
    gpus = options.get("gpus")
    checked = setup(
        _workload(workload, options.get("sequence_length")),
        plan,
        with_nodes(with_bandwidth(chosen, options.get("bandwidth")), gpus),
        stack=stack,
        gpus=gpus,
        micro_batch=options.get("micro_batch") or 1,
        global_batch=options.get("global_batch"),
    )
    return checked if fitted is None else fitted.applied(checked, str(calibration))


def _with_defaults(plan: Plan, degrees: dict[str, Any], cluster: Cluster, stack: Stack | None) -> Plan:
    """Returns a plan of options with what none of them says: the usual precision, and sequence parallelism and
    recomputation as the stack has them. Rows of tables are completed alike."""
    if "precision" not in degrees:
        plan = _in_usual_precision(plan, cluster)
    used = stack or stack_named(default_stack(plan, cluster.accelerator))
    update: dict[str, Any] = {}
    if "sequence_parallel" not in degrees and plan.tensor_parallel > 1:
        update["sequence_parallel"] = used.tensor_parallel.sequence_parallel
    if "recompute" not in degrees:
        update["recompute"] = Recompute(used.recomputation.default)
    return plan.model_copy(update=update)


def _in_usual_precision(plan: Plan, cluster: Cluster) -> Plan:
    """Returns the plan in FP16 if the cluster's GPU has no BF16, as GPUs before Ampere."""
    peaks = cluster.accelerator.peak_flops
    if MatrixPrecision.BF16 in peaks or MatrixPrecision.FP16 not in peaks:
        return plan
    return plan.model_copy(update={"precision": Precision.FP16})


def _spec(kind: str, model: type[M], given: str | Path | M | None) -> M | None:
    if given is None or isinstance(given, model):
        return given
    loaded: M = load_spec(kind, str(given))
    return loaded


def _workload(given: str | Path | Workload, sequence_length: int | None) -> Workload:
    if isinstance(given, Workload):
        data = given.model_dump(mode="json", exclude_none=True)
        if sequence_length is not None:
            data["sequence_length"] = sequence_length
        return validate(Workload, data, f"workload {given.name}")
    loaded: Workload = load_spec("workload", str(given), sequence_length=sequence_length)
    return loaded


def _plan(given: str | Path | Plan | None, degrees: dict[str, Any]) -> Plan:
    """Returns the given plan with `degrees`, or the plan that the degrees alone define."""
    if isinstance(given, Plan):
        return validate(
            Plan, {**given.model_dump(mode="json", exclude_unset=True), **degrees}, f"plan {given.name}"
        )
    if given is not None:
        loaded: Plan = load_spec("plan", str(given), **degrees)
        return loaded
    usual = default_data_parallel(*(degrees.get(key, 1) for key in ("tensor_parallel", "pipeline_parallel")))
    base = {"name": PLAN_OF_OPTIONS, "precision": "bf16", "data_parallel": usual}
    try:
        return validate(Plan, {**base, **degrees}, PLAN_OF_OPTIONS)
    except SpecError as error:
        if "unknown value" not in str(error):
            raise
        raise SpecError(f"{error}; {INLINE['plan']}") from error
