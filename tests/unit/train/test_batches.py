from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from wirecost.spec import Workload
from wirecost.train.models.gpt import GPTExamples

WORKLOAD = Workload(name="t", layers=1, hidden=8, heads=1, vocab_size=1000, sequence_length=8)


def rows(batch: dict[str, torch.Tensor]) -> list[list[int]]:
    """The running text that a micro-batch was made from."""
    return torch.cat([batch["inputs"], batch["targets"][:, -1:]], dim=1).tolist()


def test_the_global_batch_does_not_depend_on_how_it_is_shared() -> None:
    from wirecost.train.batches import Batches

    tokens = np.arange(1000, dtype=np.uint16)
    examples = GPTExamples(WORKLOAD)

    def batch(ranks: int, micro_batch: int) -> list[list[int]]:
        batches = Batches(tokens, examples, global_batch=12, micro_batch=micro_batch, seed=3)
        return [row for r in range(ranks) for part in batches.share(5, r, ranks) for row in rows(part)]

    whole = batch(1, 12)
    assert len(whole) == 12
    assert all(row == list(range(row[0], row[0] + 9)) for row in whole)
    assert batch(2, 6) == batch(3, 2) == batch(4, 3) == whole
    other = Batches(tokens, examples, global_batch=12, micro_batch=12, seed=3).share(6, 0, 1)[0]
    assert batch(1, 12) != rows(other)


def test_every_token_can_be_drawn() -> None:
    from wirecost.train.batches import Batches

    tokens = np.arange(10, dtype=np.uint16)
    batches = Batches(tokens, GPTExamples(WORKLOAD), global_batch=64, micro_batch=64, seed=1)
    drawn = {t for row in rows(batches.share(0, 0, 1)[0]) for t in row}
    assert drawn == set(range(10))


@pytest.mark.parametrize("iteration", [0, 5, 40])
def test_windows_do_not_depend_on_how_they_are_shared(tmp_path: Path, iteration: int) -> None:
    from wirecost.corpus.indexed import IndexedWriter
    from wirecost.corpus.prepared import load_windows
    from wirecost.train.batches import Batches

    writer = IndexedWriter(tmp_path / "text", np.dtype("<u2"))
    writer.add(np.arange(1000), np.full(100, 10, np.int32))
    writer.finish()
    windows = load_windows(tmp_path, 9)

    def batch(ranks: int, micro_batch: int) -> list[list[int]]:
        batches = Batches(windows, GPTExamples(WORKLOAD), global_batch=12, micro_batch=micro_batch, seed=3)
        return [row for r in range(ranks) for part in batches.share(iteration, r, ranks) for row in rows(part)]

    whole = batch(1, 12)
    assert all(row == list(range(row[0], row[0] + 9)) for row in whole)
    assert batch(2, 6) == batch(3, 2) == batch(4, 3) == whole
    assert len({row[0] for row in whole}) >= 11  # a window comes once in an epoch, and 12 of 123 may cross its end
