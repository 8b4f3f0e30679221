"""Results of benchmarks as rows: nccl-tests' text and JSON, OSU's text, our own JSON."""

from __future__ import annotations

from pathlib import Path

from wirecost.collectives.readers import nccl_json, nccl_text, osu, own_json
from wirecost.collectives.readers.base import Reading, ResultFileError
from wirecost.reading import read_text

__all__ = ["Reading", "ResultFileError", "read_results"]

MAX_BYTES = 64 << 20
"""A benchmark's output is kilobytes; a whole job's log may be more."""


def read_results(path: Path, *, ranks: int | None = None) -> Reading:
    """Reads one file, whichever of the formats it has.

    Args:
        ranks: the size of the process group, for a file that does not tell it (OSU's never do).

    Raises:
        ResultFileError: one line that names the file and what is wrong with it.
    """
    text = read_text(
        path, most_bytes=MAX_BYTES, what="benchmark's output", errors="replace", error=ResultFileError
    )
    return parse_results(text, str(path), ranks=ranks)


def parse_results(text: str, where: str, *, ranks: int | None = None) -> Reading:
    """`read_results` on text; `where` names it in errors."""
    if text.lstrip()[:1] == "{":
        if own_json.is_ours(text):
            return own_json.parse(text, where)
        return nccl_json.parse(text, where, ranks=ranks)
    if osu.TITLE.search(text):
        return osu.parse(text, where, ranks=ranks)
    return nccl_text.parse(text, where, ranks=ranks)
