"""What a probe may look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """The machine that is looked at. `root` stands in for / (its proc, sys, dev) in tests; `live` permits what
    goes beyond reading files: NVML, limits of this process, creating a network namespace."""

    root: Path = Path("/")
    live: bool = True
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    nvml: Any = None  # stands in for the pynvml module

    def text(self, path: str) -> str | None:
        """A small file's text, or None where it can't be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Sorted entries of a directory; none where it isn't there."""
        try:
            return sorted(p.name for p in (self.root / path).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()


def counted(number: int, what: str) -> str:
    """ "1 port", "2 ports"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
