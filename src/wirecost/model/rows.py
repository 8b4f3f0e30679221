"""Rows of published measurements as configurations the model can predict, or a reason why not.

Columns are those of the reference tables: n_layers, hidden, heads, kv_heads, ffn, vocab, seq, framework, gpu,
gpus_per_node, intra_link, intra_gbytes_s_per_gpu_uni, inter_link, inter_gbit_s_per_node, n_gpus, tp, pp, vpp, dp,
cp, ep, sharding, seq_par, act_recompute, mbs, gas, gbs, precision, iter_s, notes. What a row leaves open is
filled from a workload preset of the same dimensions or by the defaults below, and said in `assumed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wirecost.model.columns import CannotExpressError, number, whole
from wirecost.model.inputs import RECOMPUTE_FULL, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, Layout, Shape
from wirecost.model.machine import pick_stack
from wirecost.model.parameters import shape_of
from wirecost.model.row_workload import workload_of
from wirecost.spec import GPU, Link, MatrixPrecision, Stack, gpu
from wirecost.spec.presets import named, names

INTRA_LINKS = (
    ("nvlink5", "nvlink5"),
    ("nvlink4", "nvlink4"),
    ("nvlink3", "nvlink3"),
    ("nvlink2", "nvlink2"),
    ("pcie", "pcie4"),
    ("xgmi", "xgmi3"),
    ("infinity", "xgmi3"),
)
INTER_LINKS = (
    ("omni", "omni-path-100"),
    ("opa", "omni-path-100"),
    ("slingshot", "slingshot-11"),
    ("efa", "efa-400g"),
    ("edr", "infiniband-edr"),
    ("hdr", "infiniband-hdr"),
    ("ndr", "infiniband-ndr"),
    ("xdr", "infiniband-xdr"),
    ("ipoib", "ipoib-100g"),
    ("roce", "roce-200g"),
    ("tcp", "tcp-10g"),
    ("ethernet", "roce-200g"),
)
INTRA_DEFAULT = {
    "volta": "nvlink2",
    "ampere": "nvlink3",
    "hopper": "nvlink4",
    "blackwell": "nvlink5",
    "cdna3": "xgmi3",
}
INTER_DEFAULT = {
    "volta": "infiniband-edr",
    "ampere": "infiniband-hdr",
    "hopper": "infiniband-ndr",
    "blackwell": "infiniband-ndr",
    "cdna3": "roce-400g",
}


@dataclass(frozen=True)
class MachineKey:
    """What rows must share to be predicted together."""

    gpu: str
    stack: str
    intra: str
    intra_Bps: float
    inter: str
    node_Bps: float
    gpus_per_node: int
    precision: MatrixPrecision


@dataclass
class Configuration:
    """One row as numbers. `assumed` says what the row left open and how it was filled."""

    id: str
    source: str
    shape: Shape
    layout: Layout
    key: MachineKey
    measured_s: float | None
    parameters: dict[str, Any]
    assumed: dict[str, Any] = field(default_factory=dict)
    choose: bool = False  # the micro-batch (and interleaving) isn't given: the best that fits is meant


def find_gpu(name: str) -> GPU:
    """A GPU by name, alias, or the longest alias inside a longer name ('NVIDIA H100 80GB HBM3')."""
    if not name.strip():
        raise CannotExpressError("gpu is empty")
    try:
        return gpu(name)
    except ValueError:
        pass
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())
    found: tuple[int, str] | None = None
    for preset in names("gpu"):
        for alias in (preset, *named("gpu", preset).get("aliases", ())):
            if alias.lower() in plain and (found is None or len(alias) > found[0]):
                found = (len(alias), preset)
    if found is None:
        raise CannotExpressError(f"unknown gpu '{name[:60]}'")
    return gpu(found[1])


def _precision(text: str, framework: str, notes: str, architecture: str) -> MatrixPrecision:
    low = f"{text} {notes if 'titan' in framework else ''}".lower()
    if "fp4" in low:
        return MatrixPrecision.FP4
    if "fp8" in low or "float8" in low:
        return MatrixPrecision.FP8
    if "fp16" in low or ("float16" in low and "bfloat16" not in low):
        return MatrixPrecision.FP16
    if "bf16" not in low and "bfloat16" not in low and ("fp32" in low or "float32" in low):
        return MatrixPrecision.FP32
    return MatrixPrecision.FP16 if architecture == "volta" else MatrixPrecision.BF16


def _sharding(text: str, framework: str, data: int) -> tuple[float, bool, bool]:
    """ZeRO stage, whether gradients leave in buckets, whether shards stay in a node."""
    low = text.lower()
    hybrid = "hybrid" in low or "hsdp" in low
    said = re.search(r"zero[\s_-]*(?:stage)?[\s_-]*([0-3])", low)
    if said and said[1] != "0":
        return float(said[1]), True, hybrid
    if "grad_op" in low:
        return 2.0, True, hybrid
    if any(word in low for word in ("fsdp", "full_shard", "hsdp", "hybrid", "fully")):
        return 3.0, True, hybrid
    if "dist" in low:
        return 1.0, True, False
    if not low and "titan" in framework and data > 1:
        return 3.0, True, False  # torchtitan shards by default (its data_parallel_shard_degree is -1)
    return 0.0, "ddp" in low, False


def _recompute(text: str) -> float:
    if "full" in text:
        return RECOMPUTE_FULL
    return RECOMPUTE_SELECTIVE if "select" in text or text in ("op", "sac") else RECOMPUTE_NONE


def _links(row: Mapping[str, str | None], device: GPU, per_node: int) -> tuple[str, float, str, float, int]:
    inside, between = (row.get("intra_link") or "").lower(), (row.get("inter_link") or "").lower()
    intra = next((preset for word, preset in INTRA_LINKS if word in inside), INTRA_DEFAULT[device.architecture])
    link = Link.model_validate(named("link", intra))
    rate = (number(row, "intra_gbytes_s_per_gpu_uni") or 0) * 1e9 or link.rate / 8
    inter = next((preset for word, preset in INTER_LINKS if word in between), INTER_DEFAULT[device.architecture])
    node = (number(row, "inter_gbit_s_per_node") or 0) * 1e9 / 8
    if not node:
        nics = 4 if inter == "omni-path-100" else per_node
        node = Link.model_validate(named("link", inter)).rate / 8 * nics
    domain = re.search(r"nvl(\d+)", f"{inside} {(row.get('gpu') or '').lower()}")
    if domain and int(domain[1]) > per_node:
        # An NVLink domain of several trays is one node to the model, with all its trays' NICs.
        node *= int(domain[1]) / per_node
        per_node = int(domain[1])
    return intra, rate, inter, node, per_node


def configuration(row: Mapping[str, str | None], number_of_row: int) -> Configuration:
    """One row of a table.

    Raises:
        CannotExpressError: with the reason, where the row can't be expressed.
    """
    assumed: dict[str, Any] = {}
    try:
        workload = workload_of(row, assumed)
    except ValueError as error:
        raise CannotExpressError(f"dimensions don't fit: {' '.join(str(error).split())[:160]}") from error
    device = find_gpu(row.get("gpu") or "")
    framework = (row.get("framework") or "").lower()
    tensor, pipeline, context = (whole(row, key, 1) for key in ("tp", "pp", "cp"))
    virtual, expert = whole(row, "vpp", 1), whole(row, "ep", 1)
    world = whole(row, "n_gpus", 0)
    data = whole(row, "dp", 0) or (max(1, world // (tensor * pipeline * context)) if world else 1)
    if not world:
        world = tensor * pipeline * context * data
        assumed["n_gpus"] = world
    elif tensor * pipeline * context * data != world:
        rest = world / (tensor * pipeline * context)
        if rest < 1 or rest != int(rest):
            raise CannotExpressError(f"tp {tensor} x pp {pipeline} x cp {context} does not divide {world} GPUs")
        data = int(rest)
        assumed["dp"] = data
    micro = whole(row, "mbs", 0)
    gas, batch = whole(row, "gas", 0), number(row, "gbs")
    choose = not micro
    if choose:
        if not batch:
            raise CannotExpressError("mbs and gbs are empty")
        micro = 1
    if not gas:
        gas = max(1.0, batch / (micro * data)) if batch else float(pipeline)
        if not batch:
            assumed["gas"] = gas
    if "titan" in framework and pipeline > 1 and gas <= 1 and micro > 1:
        # torchtitan's batch size is a rank's whole batch, which its schedules cut into micro-batches of one.
        micro, gas = 1, float(micro)
        assumed.update(mbs=1, gas=gas)
    stage, bucketed, hybrid = _sharding(row.get("sharding") or "", framework, data)
    stack = pick_stack(framework, device.architecture, row.get("sharding") or "")
    recompute = (row.get("act_recompute") or "").strip().lower() or stack.recompute
    sequence_parallel = (row.get("seq_par") or "").lower() in ("yes", "true", "1")
    if not (row.get("seq_par") or "").strip() and tensor > 1 and stack.sequence_parallel:
        sequence_parallel = True
    precision_text = row.get("precision") or ""
    precision = _precision(precision_text, framework, row.get("notes") or "", device.architecture)
    if precision not in device.peak_flops:
        precision = MatrixPrecision.FP8 if MatrixPrecision.FP8 in device.peak_flops else MatrixPrecision.BF16
    intra, intra_Bps, inter, node_Bps, per_node = _links(row, device, whole(row, "gpus_per_node", 8))
    if virtual * pipeline > workload.layers + 2:  # embedding and loss may count as layers
        virtual = max(1, workload.layers // pipeline)
    layout = Layout(
        tensor=float(tensor),
        pipeline=float(pipeline),
        data=float(data),
        micro_batch=float(micro),
        accumulation=float(gas),
        virtual=float(virtual),
        context=float(context),
        expert=float(expert),
        sharding=stage,
        bucketed=float(bucketed),
        node_sharding=float(hybrid),
        sequence_parallel=float(sequence_parallel),
        recompute=_recompute(recompute),
        gradient_bytes=2.0 if "pure" in precision_text.lower() else 0.0,
    )
    key = MachineKey(device.name, stack.name, intra, intra_Bps, inter, node_Bps, per_node, precision)
    shown = (
        "model",
        "gpu",
        "n_gpus",
        "hidden",
        "n_layers",
        "seq",
        "tp",
        "pp",
        "vpp",
        "dp",
        "cp",
        "ep",
        "mbs",
        "gas",
        "gbs",
        "sharding",
        "act_recompute",
        "precision",
    )
    seconds = number(row, "iter_s")
    return Configuration(
        id=(row.get("id") or "").strip() or f"row {number_of_row}",
        source=(row.get("source") or "").strip() or "unknown",
        shape=shape_of(workload),
        layout=layout,
        key=key,
        measured_s=seconds if seconds else None,
        parameters={name: (row.get(name) or "").strip() for name in shown},
        assumed=assumed,
        choose=choose,
    )


def stack_of(key: MachineKey) -> Stack:
    return Stack.model_validate(named("stack", key.stack))
