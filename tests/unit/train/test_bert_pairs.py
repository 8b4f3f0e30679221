from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from wirecost.corpus.prepared import CorpusVocabulary
from wirecost.spec import Family, Workload
from wirecost.train.checks import check_vocabulary
from wirecost.train.models.bert_pairs import BERTPairs
from wirecost.train.models.t5_examples import T5Examples

SPECIAL = {"[PAD]": 0, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
WORDS = 200
STARTS = np.arange(WORDS) % 3 == 0  # ids that aren't multiples of 3 continue a word
VOCABULARY = CorpusVocabulary(WORDS, 3, SPECIAL, STARTS)


def workload(length: int, family: Family = Family.BERT, vocab_size: int = WORDS) -> Workload:
    more = {"decoder_layers": 1, "decoder_sequence_length": length} if family is Family.T5 else {}
    return Workload.model_validate(
        {"name": "w", "family": family, "layers": 1, "hidden": 8, "heads": 2, "vocab_size": vocab_size,
         "sequence_length": length, **more}
    )  # fmt: skip


@settings(deadline=None)
@given(length=st.integers(8, 300), seed=st.integers(0, 10_000), data=st.data())
def test_pairs_keep_the_text_and_mask_whole_words(length: int, seed: int, data: st.DataObject) -> None:
    examples = BERTPairs(workload(length), VOCABULARY)
    draw = np.random.default_rng(seed)
    rows = draw.integers(5, WORDS, (3, examples.length))
    breaks = [np.array(sorted(data.draw(st.sets(st.integers(1, examples.length - 1), max_size=4)))) for _ in rows]
    batch = examples.batch(rows, [np.random.default_rng([seed, n]) for n in range(3)], breaks)
    again = examples.batch(rows, [np.random.default_rng([seed, n]) for n in range(3)], breaks)
    assert all((batch[name] == again[name]).all() for name in batch)
    assert batch["masked"].shape == batch["targets"].shape == (3, examples.masked)
    for n, row in enumerate(rows):
        inputs, masked = batch["inputs"][n].numpy().copy(), batch["masked"][n].numpy()
        assert len(set(masked)) == len(masked)
        inputs[masked] = batch["targets"][n].numpy()
        assert inputs[0] == SPECIAL["[CLS]"]
        assert inputs[-1] == SPECIAL["[SEP]"]
        segments = batch["segments"][n].numpy()
        first, second = inputs[1 : length - segments.sum() - 1], inputs[length - segments.sum() : -1]
        assert inputs[length - segments.sum() - 1] == SPECIAL["[SEP]"]
        text = np.concatenate([second, first] if batch["order"][n] else [first, second])
        assert text.tolist() == row.tolist()
        border = len(second) if batch["order"][n] else len(first)
        assert border in (breaks[n] if len(breaks[n]) else [examples.length // 2])
        # All tokens of a word are chosen or none, except for one word.
        begins = np.flatnonzero(
            STARTS[inputs] | np.isin(np.arange(length), [0, 1, len(first) + 1, len(first) + 2])
        )
        chosen = np.isin(np.arange(length), masked)
        words = [chosen[a:b] for a, b in zip(begins, [*begins[1:], length], strict=True)]
        assert sum(w.any() and not w.all() for w in words) <= 1


def test_chosen_tokens_are_shown_as_devlin_describes() -> None:
    examples = BERTPairs(workload(512), VOCABULARY)
    rows = np.random.default_rng(1).integers(5, WORDS, (200, examples.length))
    batch = examples.batch(rows, [np.random.default_rng(n) for n in range(200)], [np.array([256])] * 200)
    shown = batch["inputs"].gather(1, batch["masked"])
    assert (shown == SPECIAL["[MASK]"]).double().mean().item() == pytest.approx(0.8, abs=0.015)
    assert (shown == batch["targets"]).double().mean().item() == pytest.approx(0.1, abs=0.015)
    assert batch["order"].double().mean().item() == pytest.approx(0.5, abs=0.12)


def test_the_ends_of_documents_are_not_masked() -> None:
    examples = BERTPairs(workload(64), VOCABULARY)
    rows = np.full((1, examples.length), 3)
    rows[0, ::2] = 30
    batch = examples.batch(rows, [np.random.default_rng(0)], [np.array([31])])
    assert set(batch["targets"][0].tolist()) == {30}


def test_special_tokens_follow_the_text_if_the_tokenizer_has_none() -> None:
    plain = CorpusVocabulary(WORDS)
    examples = BERTPairs(workload(32, vocab_size=WORDS + 3), plain)
    assert (examples.classify, examples.separator, examples.mask) == (WORDS, WORDS + 1, WORDS + 2)
    assert check_vocabulary(workload(32), VOCABULARY) is None
    assert check_vocabulary(workload(32, vocab_size=WORDS + 3), plain) is None
    reason = check_vocabulary(workload(32), plain)
    assert reason is not None
    assert "a vocab_size of at least 203" in reason
    assert "set vocab_size: 256" in reason


def test_t5_uses_the_sentinels_of_its_vocabulary() -> None:
    special = {"<pad>": 0, **{f"<extra_id_{n}>": 399 - n for n in range(100)}}
    chosen = workload(64, Family.T5, 512)
    examples = T5Examples(chosen, special)
    rows = np.random.default_rng(1).integers(5, 300, (2, examples.length))
    batch = examples.batch(rows, [np.random.default_rng(n) for n in range(2)])
    assert batch["decoder_inputs"][:, 0].tolist() == [0, 0]
    assert batch["targets"][:, 0].tolist() == [399, 399]
    assert sorted(t for t in batch["inputs"][0].tolist() if t >= 300) == list(range(400 - examples.spans, 400))
    assert check_vocabulary(chosen, CorpusVocabulary(400, 1, special)) is None
