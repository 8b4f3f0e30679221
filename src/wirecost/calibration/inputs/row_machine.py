"""The machine that a row of a table means: GPU, software stack, links and number format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from wirecost.calibration.inputs.columns import CannotExpressError, number, whole
from wirecost.calibration.properties import Parts
from wirecost.costmodel.inputs import Machine
from wirecost.costmodel.machine import Formats, Node, build
from wirecost.spec import GPU, Link, MatrixPrecision, Stack, Workload, gpu, load_spec, stack_named
from wirecost.spec.presets import named, names, preset_name, unknown_preset

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
    "cdna2": "xgmi2",
    "cdna3": "xgmi3",
    "cdna4": "xgmi4",
    "gaudi": "gaudi2",
}
INTER_DEFAULT = {
    "volta": "infiniband-edr",
    "ampere": "infiniband-hdr",
    "hopper": "infiniband-ndr",
    "blackwell": "infiniband-ndr",
    "cdna2": "slingshot-11",
    "cdna3": "roce-400g",
    "cdna4": "roce-400g",
    "gaudi": "roce-100g",
}


@dataclass(frozen=True)
class MachineKey:
    """What rows must share to be predicted together: names of their parts, and numbers of their nodes."""

    gpu: str
    stack: str
    intra: str
    intra_Bps: float
    inter: str
    node_Bps: float
    gpus_per_node: int
    precision: MatrixPrecision
    cluster: str = ""
    cuda_graphs: bool = False


GRAPHS = 0.15
"""Launch time with CUDA graphs relative to that without, by judgement: one launch replaces those of a layer."""


@lru_cache
def parts_of(key: MachineKey) -> Parts:
    """Returns the presets that a key names."""
    return Parts(gpu(key.gpu), stack_named(key.stack), link_named(key.intra), link_named(key.inter))


@lru_cache
def link_named(name: str) -> Link:
    """Returns a link preset."""
    return load_spec("link", name)


def machine_from(key: MachineKey, parts: Parts) -> Machine:
    """Returns the machine of a key with these parts."""
    node = Node(key.gpus_per_node, parts.intra, parts.inter, node_Bps=key.node_Bps, intra_Bps=key.intra_Bps)
    machine = build(parts.gpu, parts.stack, node, Formats(key.precision), parts.shared_cores)
    return replace(machine, host=machine.host.times(GRAPHS)) if key.cuda_graphs else machine


def key_of_row(row: Mapping[str, str | None], stack: Stack, world: int, assumed: dict[str, Any]) -> MachineKey:
    """Returns the machine of a row that trains with a stack on `world` GPUs; what is filled in goes to `assumed`.

    Raises:
        CannotExpressError: for an unknown GPU, or a number that can't be.
    """
    device = gpu_of(row)
    framework = (row.get("framework") or "").lower()
    precision = _precision(row.get("precision") or "", framework, row.get("notes") or "", device.architecture)
    if not (row.get("precision") or "").strip():
        assumed["precision"] = precision.value
    if precision.unscaled not in device.peak_flops:
        precision = MatrixPrecision.FP8 if MatrixPrecision.FP8 in device.peak_flops else MatrixPrecision.BF16
    per_node = whole(row, "gpus_per_node", 0)
    if not per_node:
        per_node = assumed["gpus_per_node"] = 8
    intra, intra_Bps = _intra(row, device, world, assumed)
    inter, node_Bps = _inter(row, device, per_node, world, assumed)
    inside = f"{row.get('intra_link') or ''} {row.get('gpu') or ''}".lower()
    domain = re.search(r"nvl(\d+)", inside)
    if domain and int(domain[1]) > per_node:
        # An NVLink domain of several trays is one node to the model, with all its trays' NICs.
        node_Bps *= int(domain[1]) / per_node
        per_node = int(domain[1])
    graphs = "cuda graph" in (row.get("notes") or "").lower()
    return MachineKey(
        device.name, stack.name, intra, intra_Bps, inter, node_Bps, per_node, precision, cuda_graphs=graphs
    )


def _intra(row: Mapping[str, str | None], device: GPU, world: int, assumed: dict[str, Any]) -> tuple[str, float]:
    """The link inside a node and its rate; the usual one of the GPU's architecture where the row names none."""
    text = (row.get("intra_link") or "").lower()
    link = next((preset for word, preset in INTRA_LINKS if word in text), None)
    if link is None:
        link = usual_link(device, "intra")
        if world > 1:
            assumed["intra_link"] = link
    return link, (number(row, "intra_gbytes_s_per_gpu_uni") or 0) * 1e9 or link_named(link).rate / 8


def _inter(
    row: Mapping[str, str | None], device: GPU, per_node: int, world: int, assumed: dict[str, Any]
) -> tuple[str, float]:
    """The link between nodes and the rate of a node's NICs; the usual ones of the GPU's architecture where the row
    names none."""
    text = (row.get("inter_link") or "").lower()
    link = next((preset for word, preset in INTER_LINKS if word in text), None)
    if link is None:
        link = usual_link(device, "inter")
        if world > per_node:
            assumed["inter_link"] = link
    node_Bps = (number(row, "inter_gbit_s_per_node") or 0) * 1e9 / 8
    if not node_Bps:
        nics = 4 if link == "omni-path-100" else per_node
        node_Bps = link_named(link).rate / 8 * nics
        if world > per_node:
            assumed["inter_gbit_s_per_node"] = node_Bps * 8 / 1e9
    return link, node_Bps


def usual_link(device: GPU, kind: str) -> str:
    """Returns the preset of the link that rows mean if they name none. `kind` is `intra` or `inter`.

    Raises:
        CannotExpressError: for a GPU that states no usual link.
    """
    own = device.usual_intra_link if kind == "intra" else device.usual_inter_link
    link = own or (INTRA_DEFAULT if kind == "intra" else INTER_DEFAULT).get(device.architecture)
    if link is None:
        raise CannotExpressError(f"{kind}_link is empty, and {device.name} has no usual one")
    return link


def gpu_of(row: Mapping[str, str | None]) -> GPU:
    """Returns a row's GPU. Nodes of 8 MI250X are 4 with both dies counted as GPUs, as their users count them.

    Raises:
        CannotExpressError: for an unknown GPU.
    """
    device = find_gpu(row.get("gpu") or "")
    return gpu("MI250X-GCD") if device.name == "MI250X" and whole(row, "gpus_per_node", 0) >= 8 else device


@lru_cache
def find_gpu(name: str) -> GPU:
    """Returns a GPU by name, alias, or the longest alias inside a longer name ('NVIDIA H100 80GB HBM3')."""
    if not name.strip():
        raise CannotExpressError("gpu is empty")
    if preset_name("gpu", name.strip()) is not None:
        return gpu(name)
    spelled = re.sub(r"[^a-z0-9]+", "-", name.lower())
    longest: tuple[int, str] | None = None
    for preset in names("gpu"):
        for alias in (preset, *named("gpu", preset).get("aliases", ())):
            text = re.sub(r"[^a-z0-9]+", "-", alias.lower())
            # "A10" isn't part of "A100", nor "T4" of "GT4".
            inside = re.search(rf"(?:^|-|[0-9]x){re.escape(text)}(?![0-9])", spelled)
            if inside and (longest is None or len(alias) > longest[0]):
                longest = (len(alias), preset)
    if longest is None:
        raise CannotExpressError(unknown_preset("gpu", name.strip()[:60]))
    return gpu(longest[1])


FUSED_ATTENTION = "fused_attention"


def features_of(row: Mapping[str, str | None], workload: Workload) -> frozenset[str]:
    """Returns what a row says about its software besides the framework's name.

    Models with a gated MLP or grouped queries, formats of 8 bits and sequences above 2048 tokens are younger than
    fused attention (arXiv:2205.14135, May 2022), and are trained with it.
    """
    text = f"{row.get('notes') or ''} {row.get('framework') or ''}".lower()
    young = (
        workload.gated or workload.key_value_heads != workload.heads or workload.sequence_length > YOUNG_SEQUENCE
    )
    low = any(word in (row.get("precision") or "").lower() for word in ("fp8", "fp4"))
    return frozenset({FUSED_ATTENTION} if "flash" in text or young or low else ())


YOUNG_SEQUENCE = 2048


@lru_cache
def pick_stack(
    framework: str, architecture: str, sharding: str = "", features: frozenset[str] = frozenset()
) -> Stack:
    """Returns the stack preset whose match fits most specifically: with the longest part of the framework's name,
    then with the most conditions; `generic` or `generic-unfused` where none does."""
    best, score = "generic", (0, 0)
    framework, sharding = framework.lower(), sharding.lower()
    for name in names("stack"):
        matches = named("stack", name).get("match") or ()
        for match in (matches,) if isinstance(matches, dict) else matches:
            words = match.get("framework", ())
            conditions = [
                (words, any(part in framework for part in words)),
                (match.get("architecture"), architecture in match.get("architecture", ())),
                (match.get("sharding"), any(part in sharding for part in match.get("sharding", ()))),
                (match.get("features"), bool(features & set(match.get("features", ())))),
            ]
            asked = [met for wanted, met in conditions if wanted]
            longest = max((len(part) for part in words if part in framework), default=0)
            if asked and all(asked) and (longest, len(asked)) > score:
                best, score = name, (longest, len(asked))
    return stack_named(best)


def _precision(text: str, framework: str, notes: str, architecture: str) -> MatrixPrecision:
    low = f"{text} {notes if 'titan' in framework else ''}".lower()
    if "fp4" in low:
        return MatrixPrecision.NVFP4 if "nvfp4" in low else MatrixPrecision.FP4
    if "mxfp8" in low:
        return MatrixPrecision.MXFP8
    if "fp8" in low or "float8" in low:
        return MatrixPrecision.FP8
    if "fp16" in low or ("float16" in low and "bfloat16" not in low):
        return MatrixPrecision.FP16
    if "bf16" not in low and "bfloat16" not in low and ("fp32" in low or "float32" in low):
        return MatrixPrecision.FP32
    return MatrixPrecision.FP16 if architecture == "volta" else MatrixPrecision.BF16
