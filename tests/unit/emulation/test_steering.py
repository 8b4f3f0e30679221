"""Masks of processor cores as the kernel reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.emulation.steering import cores_mask


@pytest.mark.parametrize(
    ("cores", "mask"), [(1, "1"), (2, "3"), (32, "ffffffff"), (33, "1,ffffffff"), (64, "ffffffff,ffffffff")]
)
def test_words_of_32_cores(cores: int, mask: str) -> None:
    assert cores_mask(cores) == mask


@given(st.integers(1, 4096))
def test_every_core_and_no_other(cores: int) -> None:
    words = cores_mask(cores).split(",")
    assert all(len(word) == 8 for word in words[1:])
    assert int("".join(words), 16) == (1 << cores) - 1
