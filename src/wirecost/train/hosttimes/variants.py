"""The variants of the engine whose host times are compared, and what is measured of them. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wirecost.errors import SpecError
from wirecost.spec import DataParallel, Device, Experiment, Family, Plan, Precision, Workload, validate
from wirecost.spec.experiment import Scaling
from wirecost.spec.network import Network
from wirecost.spec.parameters import count
from wirecost.spec.presets import named

SEQUENCE = 128
"""Longest sequences that are measured with. The host launches as much for longer ones, and the device then takes
less time than the host, so that no launch waits for a full queue."""
BYTES_PER_PARAMETER = 125
"""Memory that all variants together take on the device: each draws all weights in FP32 (4 bytes), and holds its
part of the weights, gradients, master weights and optimizer state (18), which is all of it for two variants and
half for the other five. The rest is for activations and the CUDA contexts."""
MEMORY_SHARE = 0.8
"""Share of the device's memory that the variants may take."""


class Cost(StrEnum):
    """What is measured. The values are keys of JSON."""

    TENSOR_COLLECTIVE = "tensor_collective"
    SEQUENCE_COLLECTIVE = "sequence_collective"
    UNIT = "fsdp_unit"
    TRANSFER = "transfer"
    LAYER = "layer"
    GATED_LAYER = "gated_layer"


@dataclass(frozen=True)
class Variant:
    """A plan whose host time is measured.

    Attributes:
        plan: keys of the plan.
        group: name of the process group whose calls are counted.
        operations: the operations that are counted. None counts all of the group.
        ranks: number of ranks, of which only the first exists.
    """

    name: str
    plan: dict[str, object]
    group: str = ""
    operations: frozenset[str] | None = None
    ranks: int = 2


ONE_RANK = "one_rank"
_ALONE: dict[str, object] = {"data_parallel": DataParallel.ALL_REDUCE}
VARIANTS: dict[Cost | None, Variant] = {
    None: Variant(ONE_RANK, _ALONE, ranks=1),
    Cost.TENSOR_COLLECTIVE: Variant(
        "tensor_parallel", {"data_parallel": DataParallel.ALL_REDUCE, "tensor_parallel": 2}, "tensor_parallel"
    ),
    Cost.SEQUENCE_COLLECTIVE: Variant(
        "sequence_parallel",
        {"data_parallel": DataParallel.ALL_REDUCE, "tensor_parallel": 2, "sequence_parallel": True},
        "tensor_parallel",
    ),
    Cost.UNIT: Variant("zero3", {"data_parallel": DataParallel.ZERO3}, "sharding", frozenset({"all_gather"})),
    Cost.TRANSFER: Variant(
        "pipeline_parallel",
        {"data_parallel": DataParallel.ALL_REDUCE, "pipeline_parallel": 2},
        "pipeline_parallel",
        frozenset({"send", "recv"}),
    ),
    Cost.LAYER: Variant("fewer_layers", _ALONE, ranks=1),
    Cost.GATED_LAYER: Variant("other_layers", _ALONE, ranks=1),
}
"""The variants by what they measure. The first is what the others are compared with. A pipeline's first stage has
other layers than the whole model, so that it is compared with itself without its transfers. What a layer takes is
measured with half of the layers, and with as many layers of the other kind: a Llama's for a GPT, a GPT's for a
Llama."""
LAYERS = (Cost.LAYER, Cost.GATED_LAYER)
"""What is measured of layers instead of communication."""


@dataclass(frozen=True)
class HostRequest:
    """What to measure.

    Attributes:
        micro_batch: number of sequences of a micro-batch. With an even number, sequence parallelism copies no
            slices.
        micro_batches: number of micro-batches of an iteration.
        warmup: number of iterations of each variant before the measured ones.
        iterations: number of iterations of a variant in each round.
        rounds: number of rounds. In each of them every variant has a turn.
        limit_s: time in seconds for everything.
    """

    workload: Workload
    precision: Precision
    device: Device = Device.CUDA
    micro_batch: int = 2
    micro_batches: int = 2
    warmup: int = 3
    iterations: int = 6
    rounds: int = 8
    limit_s: float = 180.0


def experiment_of(request: HostRequest, variant: Variant, workload: Workload) -> Experiment:
    """Returns the experiment of a variant.

    Raises:
        ValidationError: if no experiment has this workload and batch.
    """
    plan = Plan.model_validate(
        {"name": variant.name, "precision": request.precision, "graphs": False, **variant.plan}
    )
    return Experiment(
        workload=workload,
        plan=plan,
        network=validate(Network, named("network", "loopback"), "network"),
        scaling=Scaling.WEAK,
        hosts=1,
        ranks_per_host=variant.ranks,
        global_batch=request.micro_batch * request.micro_batches * variant.ranks // plan.model_parallel,
        micro_batch=request.micro_batch,
        device=request.device,
    )


def measurable(workload: Workload, memory_bytes: int | None) -> Workload:
    """Returns the workload with short sequences, and with as many layers as the device has room for.

    A collective costs the host as much with fewer layers.

    Args:
        memory_bytes: the memory of the device, or None if it doesn't limit the layers.
    """
    changes: dict[str, object] = {"sequence_length": min(workload.sequence_length, SEQUENCE)}
    if workload.decoder_sequence_length is not None:
        changes["decoder_sequence_length"] = min(workload.decoder_sequence_length, SEQUENCE)
    short = _with_layers(workload.model_copy(update=changes), 1)
    parts = 1
    while memory_bytes is not None and short.layers > 2 and not _fits(short, memory_bytes):
        parts *= 2
        short = _with_layers(short, parts)
    return short


def model_of(cost: Cost | None, workload: Workload) -> Workload:
    """Returns the model that a variant trains where the variant of one rank trains `workload`.

    Raises:
        SpecError: if the layers of the workload are of neither kind that is compared.
    """
    if cost not in LAYERS:
        return workload
    if workload.family is not Family.GPT or workload.mixture_of_experts or workload.latent_attention:
        raise SpecError(f"'{workload.name}' has layers of another kind than a GPT or a Llama")
    if cost is Cost.LAYER:
        return workload.model_copy(update={"layers": fewer_layers(workload)})
    kept = {"name", "layers", "hidden", "heads", "head_dim", "ffn_hidden", "vocab_size", "sequence_length"}
    data = workload.model_dump(include=kept)
    if workload.gated:
        return Workload.model_validate(data | {"family": "gpt"})
    # Keys and values have fewer heads, as in most Llamas.
    shared = workload.heads // 4 if workload.heads % 4 == 0 else workload.heads
    return Workload.model_validate(data | {"family": "llama", "kv_heads": shared})


def fewer_layers(workload: Workload) -> int:
    """Returns the number of layers of the variant with fewer."""
    return max(workload.layers // 2, 1)


def _with_layers(workload: Workload, parts: int) -> Workload:
    """Returns the workload with about 1 / `parts` of its layers, in numbers that divide over two stages."""
    changes: dict[str, object] = {"layers": max(workload.layers // parts // 2 * 2, 2)}
    if workload.decoder_layers is not None:
        changes["decoder_layers"] = max(workload.decoder_layers // parts // 2 * 2, 2)
    return workload.model_copy(update=changes)


def _fits(workload: Workload, memory_bytes: int) -> bool:
    return BYTES_PER_PARAMETER * count(workload).total <= MEMORY_SHARE * memory_bytes
