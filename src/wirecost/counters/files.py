"""Keeps counter files of sysfs and procfs open, so that a read is one system call of about a microsecond."""

from __future__ import annotations

import os
from pathlib import Path


class CounterFile:
    """A file whose content changes under an open descriptor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, limit: int = 32) -> bytes:
        """Returns the current content. Raises OSError if the device is gone."""
        return os.pread(self._fd, limit, 0)

    def read_int(self) -> int:
        return int(self.read())

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_if_there(path: Path) -> CounterFile | None:
    try:
        return CounterFile(path)
    except OSError:
        return None


def names_in(directory: Path) -> list[str]:
    """Returns the sorted entries of a directory; none if it doesn't exist."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 (called ten times a second)
    except OSError:
        return []


def text_of(path: Path) -> str | None:
    """Returns a small sysfs file's text; None if it can't be read, such as `speed` of an interface
    that is down.
    """
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
