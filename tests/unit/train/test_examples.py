"""BERT's and T5's examples: exact counts, the text they were made from, the same however they are shared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from wirecost.spec import Family, Workload
from wirecost.train.batches import Batches
from wirecost.train.checks import check_workload
from wirecost.train.models.bert_examples import MASK, BERTExamples
from wirecost.train.models.build import Examples, examples_for
from wirecost.train.models.t5_examples import T5Examples

TOKENS = np.random.default_rng(0).integers(0, 500, 5000).astype(np.uint16)


def workload(family: Family, length: int, decoder: int = 8) -> Workload:
    sizes = {"name": "w", "layers": 1, "hidden": 8, "heads": 1, "vocab_size": 700, "sequence_length": length}
    if family is Family.T5:
        sizes |= {"decoder_layers": 1, "decoder_sequence_length": decoder, "activation": "relu", "biases": False}
        sizes |= {"norm": "rmsnorm", "positions": "relative"}
    return Workload(family=family, **sizes)


def draws(count: int, seed: int) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, n]) for n in range(count)]


def text(examples: Examples, count: int, seed: int) -> np.ndarray:
    starts = np.random.default_rng(seed).integers(0, len(TOKENS) - examples.length, count)
    return np.stack([TOKENS[s : s + examples.length] for s in starts])


@settings(deadline=None)
@given(length=st.integers(5, 600), seed=st.integers(0, 1000))
def test_bert_masks_an_exact_number_and_keeps_the_text(length: int, seed: int) -> None:
    examples = BERTExamples(workload(Family.BERT, length))
    rows = text(examples, 3, seed)
    batch = {name: value.numpy() for name, value in examples.batch(rows, draws(3, seed)).items()}
    assert batch["inputs"].shape == batch["segments"].shape == (3, length)
    assert batch["masked"].shape == batch["targets"].shape == (3, max(1, round(0.15 * length)))
    words = examples.words
    middle = 1 + examples.half
    for n, row in enumerate(rows):
        assert len(set(batch["masked"][n])) == len(batch["masked"][n])
        whole = batch["inputs"][n].copy()
        changed = whole[batch["masked"][n]]
        assert ((changed < words) | (changed == words + MASK)).all()
        whole[batch["masked"][n]] = batch["targets"][n]
        # [CLS], the separator in the middle and the last stand where they stood, whatever the order is.
        assert np.flatnonzero(whole >= words).tolist() == [0, middle, length - 1]
        assert batch["segments"][n].tolist() == [0] * (middle + 1) + [1] * (length - middle - 1)
        first, second = whole[1:middle], whole[middle + 1 : -1]
        found = np.r_[second, first] if batch["order"][n] else np.r_[first, second]
        assert found.tolist() == row.tolist()


def test_bert_masks_80_10_10_and_swaps_every_second() -> None:
    examples = BERTExamples(workload(Family.BERT, 512))
    rows = text(examples, 200, 1)
    batch = examples.batch(rows, draws(200, 1))
    shown = batch["inputs"].gather(1, batch["masked"])
    assert (shown == examples.words + MASK).double().mean().item() == pytest.approx(0.8, abs=0.015)
    assert (shown == batch["targets"]).double().mean().item() == pytest.approx(0.1, abs=0.015)
    assert batch["order"].double().mean().item() == pytest.approx(0.5, abs=0.12)


@settings(deadline=None)
@given(length=st.integers(2, 600), decoder=st.integers(2, 300), seed=st.integers(0, 1000))
def test_t5_cuts_exactly_and_keeps_the_text(length: int, decoder: int, seed: int) -> None:
    chosen = workload(Family.T5, length, decoder)
    if check_workload(chosen):
        return
    examples = T5Examples(chosen)
    rows = text(examples, 3, seed)
    batch = examples.batch(rows, draws(3, seed))
    assert batch["inputs"].shape == (3, length)
    assert batch["targets"].shape == batch["decoder_inputs"].shape == (3, decoder)
    assert (batch["decoder_inputs"][:, 0] == examples.start).all()
    assert (batch["decoder_inputs"][:, 1:] == batch["targets"][:, :-1]).all()
    for row, inputs, targets in zip(rows, batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        spans: dict[int, list[int]] = {}
        assert targets[0] == examples.first_sentinel
        sentinel = targets[0]
        for token in targets:
            if token >= examples.first_sentinel:
                sentinel = token
                spans[sentinel] = []
            else:
                spans[sentinel].append(token)
        assert len(spans) == examples.spans
        assert min(map(len, spans.values())) > 0
        whole = [t for token in inputs for t in spans.get(token, [token])]
        assert whole == row.tolist()


@pytest.mark.parametrize("family", list(Family))
def test_the_global_batch_does_not_depend_on_how_it_is_shared(family: Family) -> None:
    examples = examples_for(workload(family, 32))

    def batch(ranks: int, micro_batch: int) -> dict[str, torch.Tensor]:
        batches = Batches(TOKENS, examples, global_batch=12, micro_batch=micro_batch, seed=3)
        parts = [part for rank in range(ranks) for part in batches.share(5, rank, ranks)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    whole = batch(1, 12)
    for ranks, micro_batch in ((2, 6), (3, 2), (4, 3)):
        shared = batch(ranks, micro_batch)
        assert all(torch.equal(whole[name], shared[name]) for name in whole)
    assert whole and all(value.dtype == torch.int64 and len(value) == 12 for value in whole.values())
