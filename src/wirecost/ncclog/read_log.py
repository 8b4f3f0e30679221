"""What was read of logs, before it is judged."""

from __future__ import annotations

from wirecost.ncclog.state import LogState


class ReadLog:
    """What the lines of all sources say, and how much was read.

    Attributes:
        sources: files or streams.
        cut_lines: lines that are cut or run into each other.
        binary_bytes: bytes that no text has.
        unreadable: names of sources that ended before their end, such as a cut .gz.
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
