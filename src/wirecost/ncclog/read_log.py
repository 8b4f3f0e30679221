"""The content of logs before it is judged."""

from __future__ import annotations

from wirecost.ncclog.state import LogState


class ReadLog:
    """The parsed content of all sources, with counts of what was read.

    Attributes:
        sources: number of files or streams.
        cut_lines: number of lines that are truncated or merged.
        binary_bytes: number of bytes that don't occur in text.
        unreadable: names of sources that are truncated, such as an incomplete .gz.
        skipped: names of files that are not text.
    """

    def __init__(self) -> None:
        self.state = LogState()
        self.sources = 0
        self.bytes = 0
        self.lines = 0
        self.nccl_lines = 0
        self.cut_lines = 0
        self.binary_bytes = 0
        self.unreadable: list[str] = []
        self.skipped: list[str] = []
