"""Encodes texts with the tokenizer of a prepared corpus."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wirecost.errors import MissingExtraError, SpecError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_TOKENS = (
    *("<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>", "<eos>", "<|im_end|>", "<EOT>"),
    *("<｜end▁of▁sentence｜>", "[SEP]"),
)
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
        tokenizers = tokenizers_library()
        try:
            tokenizer: Tokenizer = tokenizers.Tokenizer.from_str(vocabulary.content.decode())
            tokenizer.no_truncation()
            tokenizer.no_padding()
        except BaseException as error:
            # The library raises plain Exception, and for some files PanicException, which is no Exception.
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise SpecError(
                f"{vocabulary.origin}: is no tokenizer that the tokenizers library reads: {reason}"
            ) from error
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

    def decode(self, ids: list[int]) -> str:
        """Returns the text of token ids, with the names of special tokens."""
        if self._tokenizer is not None:
            return self._tokenizer.decode(ids, skip_special_tokens=False)
        return self._model.decode(ids)

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


def tokenizers_library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("tokenizing text", "data") from error
    return tokenizers


def single_threaded() -> None:
    """Makes the tokenizers library of this process use one thread: there is a process for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
