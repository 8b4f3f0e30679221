"""Handles standard streams that are closed, full, or in a mode that the objects of Python fail on."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import Any

NUMBERS = STDIN, STDOUT, STDERR = 0, 1, 2
# Reading returns the end of the file. Writing output fails as on a full disk, so that no command appears to
# succeed. Without standard error the exit code remains.
_FLAGS = {STDIN: os.O_RDONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}


def prepare_streams() -> frozenset[int]:
    """Makes the standard streams usable, and returns the numbers of those that were closed."""
    closed = _open_closed_streams()
    if sys.stdout is sys.__stdout__ and _loses_output(sys.stdout):
        sys.stdout = _complete(sys.stdout, STDOUT)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _complete(sys.stderr, STDERR)
    return closed


def _open_closed_streams() -> frozenset[int]:
    """Puts /dev/null in place of each standard stream that is closed (`>&-`, and some daemons and batch systems),
    and returns their numbers.

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


def flush_output() -> None:
    """Writes what is left in the buffer of standard output.

    Raises:
        OSError: if it can't be written. What is left is then dropped: Python would try it again when the process
            ends, and print a message of its own.
    """
    try:
        sys.stdout.flush()
    except OSError:
        _open_null(STDOUT, os.O_WRONLY)
        with suppress(OSError):
            sys.stdout.flush()
        raise


def _loses_output(stream: object) -> bool:
    """Returns whether Python's object ignores that a write took a part only (PYTHONUNBUFFERED), or fails where it
    would have to wait (a pipe that another process made non-blocking)."""
    if not isinstance(stream, io.TextIOWrapper):
        return False
    return not isinstance(stream.buffer, io.BufferedWriter) or not os.get_blocking(STDOUT)


def _complete(stream: object, number: int) -> io.TextIOWrapper:
    assert isinstance(stream, io.TextIOWrapper)
    writer = _WaitingWriter(number) if number == STDOUT else _MessageWriter(number)
    return io.TextIOWrapper(
        io.BufferedWriter(writer),
        encoding=stream.encoding,
        errors=stream.errors,
        # Messages of standard error are shown at once.
        line_buffering=stream.line_buffering or number == STDERR or stream.isatty(),
    )


class _WaitingWriter(io.RawIOBase):
    """A descriptor to which everything is written, waiting where it is non-blocking."""

    def __init__(self, number: int) -> None:
        self._number = number

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: Any, /) -> int:
        while True:
            try:
                return os.write(self._number, data)
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._number, select.POLLOUT)
                poll.poll()


class _MessageWriter(_WaitingWriter):
    """Drops what can't be written: a full disk under standard error changes neither answers nor exit codes."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _open_null(number: int, flags: int) -> None:
    descriptor = os.open(os.devnull, flags)
    if descriptor == number:
        # Child processes inherit it as open as well.
        os.set_inheritable(number, True)
        return
    os.dup2(descriptor, number)
    os.close(descriptor)
