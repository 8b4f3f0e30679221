"""Spans of time come back exactly, and damaged ones are refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wirecost.breakdown.intervals import merge
from wirecost.trace.spans import Spans

PAIRS = st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(0, 2**40)), max_size=30)


@given(pairs=PAIRS, shift=st.integers(-(2**60), 2**60))
def test_spans_come_back_exactly_and_can_be_shifted(pairs: list[tuple[int, int]], shift: int) -> None:
    merged = merge(np.array([(start, start + ns) for start, ns in pairs], dtype=np.int64).reshape(-1, 2))
    spans = Spans.of(merged)
    assert spans.intervals().tolist() == merged.tolist()
    assert spans.shifted(shift).intervals().tolist() == (merged + shift).tolist()


@pytest.mark.parametrize(
    "change",
    [{"count": 3}, {"count": 1 << 40}, {"count": -1}, {"width": 3}, {"first_ns": 1 << 63}, {"packed": b"zstd"}],
)
def test_damaged_spans_are_refused(change: dict[str, object]) -> None:
    spans = Spans.of(np.array([(1, 5), (7, 9)], dtype=np.int64))
    with pytest.raises((ValueError, zstandard.ZstdError)):
        msgspec.structs.replace(spans, **change).intervals()
