"""The index of a store: what reports and `study status` need of every result, in one file.

    STORE/index.jsonl

Its first line is `{"format_version": 1}`. Each further line is one result: its name, its stamp, its outcome and,
once a report has read it, the summary of its breakdown. The stamp holds the time of change of the result's
directory, and the time of change and the size of the files that an entry rests on. An entry whose stamp differs is
not used, and the result is read again. The index holds nothing that isn't in the results: it may be deleted at any
time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from wirecost.study.manifest import MANIFEST, DamageError, read_regular
from wirecost.study.result import BREAKDOWN, EXPERIMENT, STATUS, Outcome
from wirecost.study.summary import Summary

INDEX = "index.jsonl"
FORMAT_VERSION = 1
"""Format version. It changes with the fields of `Summary` and with the meaning of any of them."""
STAMPED = (STATUS, BREAKDOWN, EXPERIMENT, MANIFEST)

Stamp = tuple[int, ...]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A result in the index.

    Attributes:
        name: name of its directory.
        stamp: see `stamp_of`.
        summarised: whether `summary` is that of the breakdown. Otherwise only the outcome is known.
        summary: JSON of the summary of its breakdown, which is decoded when it is needed.
    """

    name: str
    stamp: Stamp
    outcome: Outcome
    summarised: bool = False
    summary: msgspec.Raw = msgspec.Raw(b"null")

    @staticmethod
    def of(name: str, stamp: Stamp, outcome: Outcome, summary: Summary | None) -> Entry:
        """Returns the entry of a result whose breakdown was read."""
        return Entry(name, stamp, outcome, True, msgspec.Raw(msgspec.json.encode(summary, enc_hook=_encoded)))

    def read_summary(self) -> Summary | None:
        """Returns the summary; None without a breakdown. Raises DamageError if it can't be read."""
        try:
            return _SUMMARY.decode(self.summary)
        except (msgspec.MsgspecError, ValidationError, ValueError) as error:
            raise DamageError(f"its entry in {INDEX} can't be read; delete {INDEX}") from error


class _Header(msgspec.Struct):
    format_version: int


class Index:
    """The entries of a store's index, which are read from its file when they are first needed."""

    def __init__(self, root: Path) -> None:
        self._path = root / INDEX
        self._entries: dict[str, Entry] | None = None
        self._is_changed = False

    def find(self, name: str, stamp: Stamp) -> Entry | None:
        """Returns the entry of a result that has this stamp now; None if there is none."""
        entry = self._read().get(name)
        return entry if entry is not None and entry.stamp == stamp else None

    def add(self, entry: Entry) -> None:
        """Adds an entry or replaces that of the same result."""
        self._read()[entry.name] = entry
        self._is_changed = True

    def keep_only(self, names: Iterable[str]) -> None:
        """Removes the entries of other results than these."""
        entries, kept = self._read(), set(names)
        for name in [name for name in entries if name not in kept]:
            del entries[name]
            self._is_changed = True

    def save(self) -> None:
        """Writes the index, if it has changed. A store that can't be written keeps the one that it has."""
        if not self._is_changed:
            return
        lines = [msgspec.json.encode(_Header(FORMAT_VERSION))]
        lines += (msgspec.json.encode(entry, enc_hook=_encoded) for entry in self._read().values())
        # Several reports may write at the same time. Each has a file of its own until it is complete.
        partial = self._path.with_name(f".{INDEX}.{os.getpid()}")
        with suppress(OSError):
            try:
                partial.write_bytes(b"\n".join(lines) + b"\n")
                partial.rename(self._path)
            finally:
                partial.unlink(missing_ok=True)
        self._is_changed = False

    def _read(self) -> dict[str, Entry]:
        if self._entries is None:
            self._entries = {}
            with suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError, ValidationError):
                self._entries = _decoded(read_regular(self._path))
        return self._entries


def stamp_of(directory: Path) -> Stamp:
    """Returns the stamp of a result: times of change in ns and sizes in bytes. A missing file has zeros."""
    try:
        numbers = [directory.stat().st_mtime_ns]
    except OSError:
        return ()
    for name in STAMPED:
        try:
            state = os.stat(f"{directory}/{name}")  # noqa: PTH116 - a path object takes three times as long
        except OSError:
            numbers += (0, 0)
        else:
            numbers += (state.st_mtime_ns, state.st_size)
    return tuple(numbers)


def _decoded(content: bytes) -> dict[str, Entry]:
    """Returns the entries of an index; none of another version.

    Raises:
        MsgspecError, ValueError: for other content.
    """
    header, *lines = content.splitlines() or [b""]
    if msgspec.json.decode(header, type=_Header).format_version != FORMAT_VERSION:
        return {}
    decoder = msgspec.json.Decoder(Entry, dec_hook=_model)
    return {entry.name: entry for entry in map(decoder.decode, lines)}


def _encoded(value: Any) -> Any:
    """Converts a model for JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    raise NotImplementedError(f"an index holds no {type(value).__name__}")


def _model(kind: type, value: Any) -> Any:
    """Returns the model of a kind with these values."""
    if issubclass(kind, BaseModel):
        return kind.model_validate(value)
    raise NotImplementedError(f"an index holds no {kind.__name__}")


_SUMMARY = msgspec.json.Decoder(Summary | None, dec_hook=_model)
