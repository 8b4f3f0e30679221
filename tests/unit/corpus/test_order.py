from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus.order import shuffled
from wirecost.corpus.titles import Titles


@given(st.integers(1, 3000), st.integers(0, 2**63), st.integers(0, 5))
def test_every_item_comes_once(count: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(np.arange(count), count, seed, epoch).tolist()) == list(range(count))


def test_the_order_is_that_of_its_key_and_looks_random() -> None:
    count = 10_007
    order = shuffled(np.arange(count), count, 1, 0)
    assert shuffled([5, 7], count, 1, 0).tolist() == order[[5, 7]].tolist()
    assert order.tolist() != shuffled(np.arange(count), count, 1, 1).tolist()
    # Neighbours and places are uncorrelated: |r| stays below 4 / sqrt(count).
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.04
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.04


def test_a_place_among_billions_is_computed_at_once() -> None:
    assert 0 <= shuffled([10**12 - 1], 10**12, 3)[0] < 10**12


@given(st.lists(st.integers(1, 50)))
def test_titles_are_new_once(hashes: list[int]) -> None:
    titles = Titles(np.array([7, 9], np.uint64))
    known = {7, 9}
    expected = [number not in known and number not in hashes[:place] for place, number in enumerate(hashes)]
    assert [titles.add(number) for number in hashes] == expected
