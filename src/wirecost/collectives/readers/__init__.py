"""Reads benchmark results: text and JSON of nccl-tests and rccl-tests, text of OSU, and wirecost's own JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wirecost.collectives.readers import foreign, nccl_json, nccl_text, osu, own_json
from wirecost.collectives.readers.base import Reading, ResultFileError, Table
from wirecost.collectives.readers.lines import decode
from wirecost.reading import read_bytes

__all__ = ["Reading", "ResultFileError", "Table", "parse_results", "read_results"]

MAX_BYTES = 64 << 20
"""A benchmark's output is kilobytes; a whole job's log may be more."""


def read_results(path: Path, *, ranks: int | None = None) -> Reading:
    """Reads one file in any of the supported formats.

    Args:
        ranks: the size of the process group, for a file that does not give it (OSU's output never does).

    Raises:
        ResultFileError: one line that names the file and what is wrong with it.
    """
    text = decode(read_bytes(path, most_bytes=MAX_BYTES, what="benchmark's output", error=ResultFileError))
    return parse_results(text, str(path), ranks=ranks)


def parse_results(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """Reads results from text as `read_results` does from a file. `where` names the text in errors."""
    text = text.removeprefix("\ufeff")
    try:
        return _parse(text, where, ranks)
    except ResultFileError:
        if (program := foreign.program_of(text)) is not None and "busbw" not in text:
            raise ResultFileError(
                f"{where}: this is {program} output, which wirecost can't read; it reads the output of "
                "nccl-tests, rccl-tests and the OSU micro-benchmarks"
            ) from None
        raise


def _parse(text: str, where: str, ranks: int | None) -> Reading:
    problem: str | None = None
    if text.lstrip()[:1] in ("{", "["):
        data, problem = _decoded(text)
        if own_json.is_ours(data):
            return own_json.parse(text, where)
        if isinstance(data, dict | list):
            return nccl_json.parse(data, where, ranks=ranks)
    # Lines of a log collector and tags of a launcher begin with brackets too.
    try:
        if (title := osu.TITLE.search(text)) is not None and "busbw" not in text[title.start() :]:
            return osu.parse(text, where, ranks=ranks)
        return nccl_text.parse(text, where, ranks=ranks)
    except ResultFileError:
        if problem is not None and not any(word in text for word in ("busbw", "OSU ")):
            raise ResultFileError(f"{where}: not readable as JSON: {problem[:100]}") from None
        raise


def _decoded(text: str) -> tuple[Any, str]:
    """Returns the JSON value of a text and an empty string, or None and the parser's message."""
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as error:
        return None, str(error)
