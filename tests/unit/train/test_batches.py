from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")


def test_the_global_batch_does_not_depend_on_how_it_is_shared() -> None:
    from wirecost.train.batches import Batches

    tokens = np.arange(1000, dtype=np.uint16)

    def batch(ranks: int, micro_batch: int) -> list[list[int]]:
        batches = Batches(tokens, sequence_length=8, global_batch=12, micro_batch=micro_batch, seed=3)
        return [row.tolist() for r in range(ranks) for part in batches.share(5, r, ranks) for row in part]

    whole = batch(1, 12)
    assert len(whole) == 12
    assert all(row == list(range(row[0], row[0] + 9)) for row in whole)
    assert batch(2, 6) == batch(3, 2) == batch(4, 3) == whole
    assert batch(1, 12) != [r.tolist() for r in Batches(tokens, sequence_length=8, global_batch=12, micro_batch=12, seed=3).share(6, 0, 1)[0]]  # fmt: skip


def test_every_token_can_be_drawn() -> None:
    from wirecost.train.batches import Batches

    tokens = np.arange(10, dtype=np.uint16)
    batches = Batches(tokens, sequence_length=8, global_batch=64, micro_batch=64, seed=1)
    drawn = {int(t) for row in batches.share(0, 0, 1)[0] for t in row}
    assert drawn == set(range(10))
