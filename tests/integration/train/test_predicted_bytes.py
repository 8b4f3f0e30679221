"""The cost model predicts the bytes that the engine sends with tensor parallelism, by operation and group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.model_bytes import predicted_bytes, recorded_bytes
from support.parity import LLAMA, WORKLOADS, experiment, train_all
from wirecost.spec import Experiment, Family, Plan, Workload

HIDDEN = 128
"""ZeRO starts each parameter at a multiple of 64 elements. The shards of a tensor-parallel rank of such a model end
at one, so that ZeRO pads nothing between them."""
KINDS = ("all_reduce", "ddp", "zero1", "zero2", "zero3")


def wide(workload: Workload, **changes: Any) -> Workload:
    return Workload.model_validate({**workload.model_dump(), "hidden": HIDDEN, **changes})


def mixture(name: str, **settings: Any) -> Workload:
    moe = {"experts": 4, "top_k": 2, "expert_ffn_hidden": 64, **settings}
    return wide(LLAMA, name=name, mixture_of_experts=moe)


GPT = wide(WORKLOADS[Family.GPT], layers=2)
# Its embedding is larger than its head, so that ZeRO-3 gathers both together.
BERT = wide(WORKLOADS[Family.BERT], layers=2, vocab_size=1024)
T5 = wide(WORKLOADS[Family.T5], vocab_size=256)
UNTIED, TIED = wide(LLAMA, name="untied"), wide(LLAMA, name="tied", tied_embeddings=True)
PLAIN, SHARED = mixture("plain"), mixture("shared", shared_experts=1, dense_layers=1)
AUX = mixture("aux", shared_experts=1, scoring="sigmoid", aux_loss=0.05)
BALANCED = mixture("balanced", routing="balanced")
LATENT = wide(
    PLAIN,
    name="latent",
    kv_heads=None,
    latent_attention={"kv_rank": 64, "q_rank": 64, "nope_head_dim": 16, "rope_head_dim": 16, "value_head_dim": 16},
)
ALL = (GPT, BERT, T5, UNTIED, TIED, wide(LLAMA, name="ungrouped", kv_heads=None), PLAIN, SHARED, AUX, LATENT)


def case(workload: Workload, ranks: int, tensor: int = 2, *, hosts: int = 1, **settings: Any) -> Experiment:
    plan = Plan.model_validate({"name": "p", "tensor_parallel": tensor, **settings})
    shape = {"hosts": hosts, "ranks_per_host": ranks // hosts}
    return experiment(plan, workload, ranks, iterations=2, **shape)


def on_two() -> Iterator[Experiment]:
    for workload in ALL:
        for sequence in (False, True):
            for recompute in ("none", "full"):
                yield case(workload, 2, sequence_parallel=sequence, recompute=recompute)
    for workload in (GPT, SHARED):
        yield case(workload, 2, sequence_parallel=True, recompute="selective")
        yield case(workload, 2, sequence_parallel=True, precision="bf16")


def on_four() -> Iterator[Experiment]:
    for workload in ALL:
        for kind in KINDS:
            yield case(workload, 4, sequence_parallel=True, data_parallel=kind)
        yield case(workload, 4, tensor=4, sequence_parallel=True)
    for workload in (GPT, UNTIED, SHARED):
        for recompute in ("none", "full"):
            yield case(workload, 4, data_parallel="zero3", recompute=recompute)
        yield case(workload, 4, data_parallel="zero3", sequence_parallel=True, recompute="full")
        yield case(workload, 4, data_parallel="ddp")
    for kind in KINDS:
        yield case(GPT, 4, sequence_parallel=True, data_parallel=kind, precision="bf16")
    for kind in ("ddp", "zero1", "zero2"):
        yield case(BALANCED, 4, sequence_parallel=True, data_parallel=kind, expert_parallel=2)


@pytest.mark.parametrize("cases", [list(on_two()), list(on_four())], ids=["two-ranks", "four-ranks"])
def test_predicted_bytes_are_those_of_the_engine(cases: list[Experiment], tmp_path: Path) -> None:
    assert cases
    for one, trained in zip(cases, train_all(cases, tmp_path), strict=True):
        # The last iteration is compared. With overlap, ZeRO gathers parameters at the start of an iteration, if the
        # optimizer changed them at the end of the iteration before it. The first iteration therefore gathers none.
        recorded = recorded_bytes(of_rank[-1] for of_rank in trained.calls)
        assert recorded == predicted_bytes(one) + padding(one), f"{one.workload.name} with {one.plan}"


def padding(one: Experiment) -> Counter[tuple[str, str]]:
    """Returns the bytes of padding, which the model doesn't count. The last parameter of a BERT is a bias of two
    elements. ZeRO-1 and ZeRO-2 start the next one at a multiple of 64, and end at a multiple of 64 for each rank.
    """
    if one.workload.family is not Family.BERT or one.plan.data_parallel not in ("zero1", "zero2"):
        return Counter()
    each = one.ranks * 4 * (62 + 64)
    scatters = one.accumulation if one.plan.data_parallel == "zero2" else 1
    return Counter({("all_gather", "data"): each, ("reduce_scatter", "data"): scatters * each})
