"""Handles standard streams that are closed when the command starts (`>&-`, some daemons and batch systems)."""

from __future__ import annotations

import errno
import os
import sys

NUMBERS = STDIN, STDOUT, STDERR = 0, 1, 2
# Reading returns the end of the file. Writing output fails as on a full disk, so that no command appears to
# succeed. Without standard error the exit code remains.
_FLAGS = {STDIN: os.O_RDONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}


def open_closed_streams() -> frozenset[int]:
    """Puts /dev/null in place of each standard stream that is closed, and returns their numbers.

    Otherwise the next file that is opened takes the stream's number: messages of this process, its libraries and
    its children are written into that file.
    """
    closed: set[int] = set()
    for number in NUMBERS:
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            closed.add(number)
            _open_null(number, _FLAGS[number])
    # Python's objects of closed streams are None.
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stdout is None:
        sys.stdout = open(STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    return frozenset(closed)


def discard_output() -> None:
    """Makes writes to a closed standard output succeed without effect."""
    _open_null(STDOUT, os.O_WRONLY)


def _open_null(number: int, flags: int) -> None:
    descriptor = os.open(os.devnull, flags)
    if descriptor == number:
        # Child processes inherit it as open as well.
        os.set_inheritable(number, True)
        return
    os.dup2(descriptor, number)
    os.close(descriptor)
