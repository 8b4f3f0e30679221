"""Restores the lines that a benchmark printed: removes what launchers, log collectors and terminals added."""

from __future__ import annotations

import re

from wirecost.ncclog.wrapping import Decoder, Prefixes, peel

# How a benchmark's own lines begin. Text before such a line is a prefix of its other lines too.
_OWN = re.compile(
    r"#?\s*nThreads?:? \d+ nGpus|#\s*(?:Using devices|nccl-tests version|Collective test|Out of bounds|Rank +\d+ )"
    r"|#\s+(?:size|bytes)\s+(?:count|N)\s|# OSU |# Size\s|# wirecost "
)


def decode(data: bytes) -> str:
    """Returns the text of a file. Detects its encoding by byte order mark or NULs; the default is UTF-8."""
    decoder = Decoder()
    return (decoder.feed(data) + decoder.end()).decode("utf-8", "replace")


def bare_lines(text: str) -> list[str]:
    """Returns the lines of a text as the benchmark printed them. One wrapped line can hold several, or none."""
    peeled: list[str] = []
    for line in text.splitlines():
        parts = peel(line.encode("utf-8", "surrogateescape"))
        peeled += [part.decode("utf-8", "replace") for part in parts]
    prefixes = Prefixes()
    for line in peeled:
        if (match := _OWN.search(line)) is not None and line[: match.start()].strip():
            prefixes.learn(line[: match.start()])
    return [prefixes.bare(line).rstrip() for line in peeled]
