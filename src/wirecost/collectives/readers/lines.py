"""The lines that a benchmark printed, without what launchers, collectors and terminals put around them."""

from __future__ import annotations

import re

from wirecost.ncclog.wrapping import Decoder, Prefixes, peel

# How a benchmark's own lines begin; what stands before them there stands before its other lines, too.
_OWN = re.compile(
    r"#?\s*nThreads?:? \d+ nGpus|#\s*(?:Using devices|nccl-tests version|Collective test|Out of bounds|Rank +\d+ )"
    r"|#\s+(?:size|bytes)\s+(?:count|N)\s|# OSU |# Size\s|# wirecost "
)


def decode(data: bytes) -> str:
    """The text of a file in any encoding that is told by its mark or its NULs; UTF-8 otherwise."""
    decoder = Decoder()
    return (decoder.feed(data) + decoder.end()).decode("utf-8", "replace")


def bare_lines(text: str) -> list[str]:
    """The lines of a text, each as the benchmark printed it. A line of a wrapper can hold several, or none."""
    peeled: list[str] = []
    for line in text.splitlines():
        parts = peel(line.encode("utf-8", "surrogateescape"))
        peeled += [part.decode("utf-8", "replace") for part in parts]
    prefixes = Prefixes()
    for line in peeled:
        if (match := _OWN.search(line)) is not None and line[: match.start()].strip():
            prefixes.learn(line[: match.start()])
    return [prefixes.bare(line).rstrip() for line in peeled]
