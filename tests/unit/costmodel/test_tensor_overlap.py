"""Tensor-parallel collectives under the matrix products beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.model import made, predicted
from wirecost.costmodel.setup import layout_of
from wirecost.costmodel.tensor import under_products_s
from wirecost.errors import SpecError


def tensor_s(overlap: bool | None, stack: str = "generic", **options: object) -> float:
    plan = {"tensor_parallel": 8, "sequence_parallel": True, "data_parallel": "zero1", "tensor_overlap": overlap}
    return float(predicted("llama-3-70b", **{"gpus": 8, **plan, **options}, stack=stack).times.tensor_s)


@given(st.floats(0, 10), st.floats(0, 10), st.sampled_from([2, 4, 8]))
def test_products_hide_all_but_a_chunk_and_never_more_than_they_take(comm: float, products: float, t: int) -> None:
    layout = layout_of(made(gpus=8, tensor_parallel=t, sequence_parallel=True, data_parallel="zero1"))
    exposed = float(under_products_s(comm, products, layout))
    assert comm / t - 1e-12 <= exposed <= comm
    assert comm - exposed <= products + 1e-12


def test_overlap_hides_more_than_none_and_replaces_what_the_stack_does() -> None:
    assert tensor_s(True) < tensor_s(None) < tensor_s(False)
    # Whatever a stack hides otherwise, without overlap all is exposed.
    assert tensor_s(False, "megatron-core") > tensor_s(None, "megatron-core")


def test_what_products_do_not_cover_stays_exposed() -> None:
    slow = {"bandwidth": "25 Gb/s", "gpus": 16, "rank_order": "pp-dp-cp-tp"}
    hidden = tensor_s(False, **slow) - tensor_s(True, **slow)
    assert 0 < hidden < 0.2 * tensor_s(False, **slow)


def test_overlap_needs_sequence_parallelism() -> None:
    with pytest.raises(SpecError, match="set sequence_parallel: true"):
        made(gpus=8, tensor_parallel=8, tensor_overlap=True)
    assert made(gpus=8, tensor_overlap=True).plan.tensor_overlap  # nothing to overlap
