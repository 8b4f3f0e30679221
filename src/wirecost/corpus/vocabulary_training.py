"""Trains tokenizers on the text of a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wirecost.corpus.encoder import Vocabulary, tokenizers_library
from wirecost.errors import SpecError, WirecostError

TRAINED_SIZES = {"bpe": 32_000, "wordpiece": 30_522, "unigram": 32_000}
"""Default vocabularies of tokenizers that are trained on the corpus: BERT's and T5's have these sizes."""
SENTINELS = 100
_LEAST_TOKENS = 100
_ORIGIN = "trained on this corpus"
_UNKNOWN, _BERT_UNKNOWN = "<unk>", "[UNK]"


def trained_kind(name: str) -> str:
    """Returns the kind of tokenizer that is trained for a name."""
    return {"bert": "wordpiece", "t5": "unigram"}.get(name, name)


def bert_tokenizer(tokenizers: Any, model: Any, lower: bool) -> Any:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return tokenizer


def train_vocabulary(name: str, texts: Iterable[str], size: int | None) -> Vocabulary:
    """Trains a tokenizer on texts.

    Args:
        name: `bpe` (byte-level, as GPT-2's), `wordpiece` or `bert` (lower case, as BERT's), `unigram` or `t5`
            (SentencePiece's model, as T5's).
        size: number of tokens; the usual one if None. A small corpus gives fewer.

    Raises:
        SpecError: if the texts are too few, or the size is too small.
    """
    kind = trained_kind(name)
    wanted = size or TRAINED_SIZES[kind]
    tokenizer, trainer, special, least = _UNTRAINED[kind](tokenizers_library(), wanted)
    if wanted < least:
        raise SpecError(f"--vocab-size {wanted}: is too small for {kind}, which has at least {least} tokens")
    try:
        tokenizer.train_from_iterator(texts, trainer)
    except WirecostError:
        raise
    except Exception as error:
        raise SpecError(f"no {kind} tokenizer can be trained on this text: {str(error)[:120]}") from error
    if tokenizer.get_vocab_size() <= len(special):
        raise SpecError(f"no {kind} tokenizer can be trained: the text is too short")
    if kind == "unigram":
        # T5's sentinels count down from the last id.
        tokenizer.add_special_tokens([f"<extra_id_{n}>" for n in reversed(range(SENTINELS))])
    return Vocabulary(name, _ORIGIN, "tokenizer.json", tokenizer.to_str().encode())


def _bpe(library: Any, size: int) -> tuple[Any, Any, list[str], int]:
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    special = ["<|endoftext|>"]
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    return tokenizer, trainer, special, len(alphabet) + len(special)


def _wordpiece(library: Any, size: int) -> tuple[Any, Any, list[str], int]:
    special = ["[PAD]", _BERT_UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = bert_tokenizer(library, library.models.WordPiece(unk_token=_BERT_UNKNOWN), True)
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special, limit_alphabet=1000, show_progress=False
    )
    return tokenizer, trainer, special, _LEAST_TOKENS


def _unigram(library: Any, size: int) -> tuple[Any, Any, list[str], int]:
    special = ["<pad>", "</s>", _UNKNOWN]
    tokenizer = library.Tokenizer(library.models.Unigram())
    tokenizer.normalizer = library.normalizers.Sequence(
        [library.normalizers.NFKC(), library.normalizers.Replace(library.Regex(r"\s+"), " ")]
    )
    tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
    tokenizer.decoder = library.decoders.Metaspace()
    trainer = library.trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special, unk_token=_UNKNOWN, show_progress=False
    )
    return tokenizer, trainer, special, _LEAST_TOKENS


_UNTRAINED = {"bpe": _bpe, "wordpiece": _wordpiece, "unigram": _unigram}
"""A tokenizer of each kind, its trainer, its special tokens, and the least number of tokens."""
