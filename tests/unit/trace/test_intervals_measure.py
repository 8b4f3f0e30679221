"""`measure_before`, held against counting nanoseconds one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wirecost.breakdown.intervals import from_pairs, measure_before

spans = st.lists(
    st.tuples(st.integers(-20, 40), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=8
)


@given(spans, st.lists(st.integers(-30, 70), max_size=6))
def test_measure_before(pairs: list[tuple[int, int]], times: list[int]) -> None:
    covered = {t for s, e in pairs for t in range(s, e)}
    got = measure_before(from_pairs(pairs), np.array(times, dtype=np.int64))
    assert got.tolist() == [sum(c < t for c in covered) for t in times]
