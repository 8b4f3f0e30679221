"""Opens and decompresses the files that a user names, with bounds on bytes, memory and waiting.

Every reader of wirecost uses this module. A path may name a regular file or a pipe, such as a shell's process
substitution `<(zcat table.csv.gz)`. Devices, sockets and directories are refused in one line.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from wirecost.decompression import is_compressed
from wirecost.errors import WirecostError

CHUNK_BYTES = 1 << 20
MOST_RESULT_BYTES = 256 << 20
"""The largest size of a file of wirecost's own results (a breakdown, a rank's samples). Large ones have some MiB.
"""
NOTICE_S = 5.0
"""After this time without a byte, `notify` tells the user which pipe the reader waits for."""
WRITER_S = 10.0
"""A named pipe that no process opens for writing within this time is refused."""
SILENCE_S = 300.0
"""A pipe whose writer gives nothing for this long is refused."""
POLL_S = 0.1
MOST_NAME = 300
"""Number of characters of a path that an error shows."""
MOST_UNSIZED_BYTES = 64 << 20
"""Most bytes that are read from a file whose size is reported as 0, as the kernel does for files in /proc."""

notify: Callable[[str], None] | None = None
"""Function that is called with one line when a reader waits for a pipe. The command line prints it on stderr."""


@contextmanager
def open_file(
    path: Path, *, pipes: bool = True, skip_holes: bool = False, error: type[WirecostError] = WirecostError
) -> Iterator[BinaryIO]:
    """Opens a regular file or, if `pipes`, a pipe for reading.

    With `skip_holes`, parts of a sparse file that were never written are left out instead of being read as zeros.
    A log that was truncated while its writer went on starts with such a part.

    Reading from a pipe ends with `error` when nobody writes to it within `WRITER_S`, or its writer gives nothing
    for `SILENCE_S`. A file that has no size but more than `MOST_UNSIZED_BYTES` ends with `error` as well. A file
    that grows while it is read ends after `MOST_UNSIZED_BYTES` and twice its first size.

    Raises:
        error: one line that names the path: no such file, not readable, a directory, device or socket.
    """
    source = _opened(path, pipes, error)
    source.skip_holes = skip_holes and source.is_sparse()
    with io.BufferedReader(source, CHUNK_BYTES) as file:
        yield cast(BinaryIO, file)


def standard_input(error: type[WirecostError] = WirecostError) -> BinaryIO:
    """Returns standard input for reading: a file, a pipe, a terminal or the null device.

    Raises:
        error: one line, if it is another device: it may never end.
    """
    stream = cast(BinaryIO, sys.stdin.buffer)
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # it has no descriptor
        return stream
    endless = stat.S_ISCHR(status.st_mode) and status.st_rdev != Path(os.devnull).stat().st_rdev
    if stat.S_ISBLK(status.st_mode) or (endless and not stream.isatty()):
        raise error("standard input: is a device, not a file")
    return stream


def read_bytes(
    path: Path,
    *,
    most_bytes: int,
    what: str = "file of its kind",
    pipes: bool = True,
    error: type[WirecostError] = WirecostError,
) -> bytes:
    """Returns the content of a file of at most `most_bytes` bytes. `what` names the kind of file in an error.

    Raises:
        error: see `open_file`; and for a larger file.
    """
    with open_file(path, pipes=pipes, error=error) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most_bytes else file.read(most_bytes + 1)
    if size > most_bytes or len(data) > most_bytes:
        raise error(f"{_shown(path)}: longer than {_size(most_bytes)}, which no {what} is")
    return data


def read_text(
    path: Path,
    *,
    most_bytes: int,
    what: str = "file of its kind",
    encoding: str = "utf-8",
    errors: str = "strict",
    pipes: bool = True,
    error: type[WirecostError] = WirecostError,
) -> str:
    """Returns the text of a file of at most `most_bytes` bytes.

    Raises:
        error: see `read_bytes`; and for bytes that are not valid in `encoding`.
    """
    data = read_bytes(path, most_bytes=most_bytes, what=what, pipes=pipes, error=error)
    try:
        text = data.decode(encoding, errors)
    except UnicodeDecodeError as failure:
        hint = ": compressed; decompress it first" if is_compressed(data) else ""
        raise error(f"{_shown(path)}: not UTF-8 text (byte {failure.start}){hint}") from failure
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_result(path: Path, error: type[WirecostError] = WirecostError) -> bytes:
    """Returns the content of a file of wirecost's own results.

    Raises:
        error: see `read_bytes`.
    """
    return read_bytes(path, most_bytes=MOST_RESULT_BYTES, pipes=False, error=error)


def _opened(path: Path, pipes: bool, error: type[WirecostError]) -> _Source:
    try:
        # The kind is checked first: opening some devices has an effect (a tape rewinds, a watchdog starts).
        _check_kind(path, path.stat().st_mode, pipes, error)
        # Without O_NONBLOCK opening a named pipe waits for its writer, and reading some of the kernel's files has
        # no end.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as failure:
        raise error(f"{_shown(path)}: no such file") from failure
    except OSError as failure:
        raise error(f"{_shown(path)}: can't be read: {failure.strerror}") from failure
    except ValueError as failure:  # a NUL in the name
        raise error(f"{_shown(path)}: is no path ({failure})") from failure
    try:
        status = os.fstat(fd)
        _check_kind(path, status.st_mode, pipes, error)
        return _Source(fd, _shown(path), stat.S_ISFIFO(status.st_mode), status.st_size == 0, error)
    except BaseException:
        os.close(fd)
        raise


def _check_kind(path: Path, mode: int, pipes: bool, error: type[WirecostError]) -> None:
    if stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode)):
        return
    if stat.S_ISFIFO(mode):
        raise error(f"{_shown(path)}: not a regular file; write a pipe's data to a file first")
    kind = "a directory" if stat.S_ISDIR(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise error(f"{_shown(path)}: is {kind}, not a file")


class _Source(io.RawIOBase):
    """A raw stream over a non-blocking descriptor, whose reads wait for a limited time."""

    def __init__(self, fd: int, name: str, pipe: bool, unsized: bool, error: type[WirecostError]) -> None:
        self._fd, self._name, self._pipe, self._error = fd, name, pipe, error
        # A log may grow faster than it is read. Twice, because some network file systems know old sizes only.
        self._left = None if pipe or unsized else 2 * os.fstat(fd).st_size + MOST_UNSIZED_BYTES
        self._unsized_left = MOST_UNSIZED_BYTES if unsized and not pipe else None
        # A shell's own pipe has had its writer from the start; a named one waits until somebody opens it.
        self._unwritten = pipe and not str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("pipe:")
        self._noticed = False
        self.skip_holes = False

    def is_sparse(self) -> bool:
        """Returns whether a regular file takes less space on its device than its size."""
        status = os.fstat(self._fd)
        return stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < status.st_size

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        since = time.monotonic()
        if (self._left is not None and self._left <= 0) or (self.skip_holes and not self._seek_data()):
            return 0
        while True:
            try:
                count = os.readv(self._fd, [buffer])
            except BlockingIOError:
                if not self._pipe:
                    raise self._error(f"{self._name}: gives nothing to read; it is no file with data") from None
                self._unwritten = False
                self._wait(since, SILENCE_S, "gave nothing")
                continue
            except OSError as failure:
                raise self._error(f"{self._name}: can't be read: {failure.strerror}") from failure
            if count == 0 and self._unwritten and not self._ready(0):
                self._wait(since, WRITER_S, "nobody opened for writing")
                continue
            self._unwritten = False
            self._check_size(count)
            return count

    def _seek_data(self) -> bool:
        """Moves to the next byte that was written. Returns whether there is one."""
        try:
            os.lseek(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR), os.SEEK_DATA)
        except OSError as failure:
            # Some file systems can't tell where the data are.
            return failure.errno != errno.ENXIO
        return True

    def _check_size(self, count: int) -> None:
        if self._left is not None:
            self._left -= count
        if self._unsized_left is None:
            return
        self._unsized_left -= count
        # A file that grows, such as a log, has a size by now.
        if self._unsized_left < 0 and os.fstat(self._fd).st_size == 0:
            raise self._error(
                f"{self._name}: claims to be empty and gives more than {_size(MOST_UNSIZED_BYTES)}: no data file"
            )

    def _wait(self, since: float, most_s: float, why: str) -> None:
        """Waits a moment for data. Raises the error once `most_s` have passed since `since`."""
        waited_s = time.monotonic() - since
        if waited_s >= most_s:
            raise self._error(
                f"{self._name}: a pipe that {why} within {most_s:.0f} s; write its data to a file first"
            )
        if waited_s >= NOTICE_S and not self._noticed and notify is not None:
            self._noticed = True
            notify(f"waiting for {self._name}, a pipe that {why} yet")
        # poll can't wait for a pipe that no writer has opened.
        if self._unwritten:
            time.sleep(POLL_S)
        else:
            self._ready(POLL_S)

    def _ready(self, timeout_s: float) -> bool:
        """Returns whether data or the end of a pipe can be read."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= MOST_NAME else f"{text[:MOST_NAME]}..."


def _size(count: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} bytes"
