"""Faults of the storage: no space, an exhausted quota, a read-only file system, a device with errors."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from wirecost.errors import WirecostError

FIRST_EXIT_CODE = 100
PROBE_BYTES = 64 << 10
_NO_TEMPORARY_DIRECTORY = "No usable temporary directory"
"""Python's tempfile raises an error with this text, and without a useful number, when it can write to no
directory.
"""


@dataclass(frozen=True)
class Fault:
    """One way in which storage fails. A message reads "PATH: `what`; `remedy`"; `remedy` tells the user what to
    do.
    """

    exit_code: int
    what: str
    remedy: str


_CANT_WRITE = "can't be written: "
_ERRORS = "look for the device's errors in dmesg and use a sound one"
_KNOWN = (
    (errno.ENOSPC, _CANT_WRITE, "make room there (df -h and df -i show what is left)"),
    (errno.EDQUOT, _CANT_WRITE, "delete something or have the quota raised (quota -s shows it)"),
    (errno.EROFS, _CANT_WRITE, "mount it writable (the kernel makes it read-only after errors: see dmesg)"),
    (errno.EFBIG, _CANT_WRITE, "raise the limit on a file's size (ulimit -f shows it)"),
    (errno.EIO, "can't be used: ", _ERRORS),
    (errno.EUCLEAN, "can't be used: ", _ERRORS),
    (errno.ESTALE, "can't be used: ", "mount the network file system anew"),
)
FAULTS = {
    number: Fault(FIRST_EXIT_CODE + place, f"{start}{os.strerror(number)}", remedy)
    for place, (number, start, remedy) in enumerate(_KNOWN)
}
MAPPED = Fault(
    FIRST_EXIT_CODE + len(_KNOWN),
    "a process was killed by SIGBUS: memory that a file or /dev/shm stands for could not be had",
    "make room there and in /dev/shm (containers: --shm-size), and look for the device's errors in dmesg",
)
TEMPORARY = Fault(
    FIRST_EXIT_CODE + len(_KNOWN) + 1,
    "no directory for temporary files can be written",
    "make room in the temporary directory, or name another one (TMPDIR)",
)
UNKNOWN = Fault(
    FIRST_EXIT_CODE + len(_KNOWN) + 2,
    "can't be written whole, and PyTorch doesn't say why",
    "look at the room (df -h), quota (quota -s), limit on a file's size (ulimit -f) and device (dmesg)",
)
_TEXTS = {
    **{os.strerror(number): fault for number, fault in FAULTS.items()},
    # torch.save raises these two for a write that was incomplete.
    "PytorchStreamWriter failed writing": UNKNOWN,
    "] . unexpected pos ": UNKNOWN,
    _NO_TEMPORARY_DIRECTORY: TEMPORARY,
}
"""Texts that libraries use for a fault in errors that carry no number."""
_BY_EXIT_CODE = {
    **{fault.exit_code: fault for fault in (*FAULTS.values(), MAPPED, TEMPORARY, UNKNOWN)},
    # The code that subprocess returns, and the one that a shell returns.
    -signal.SIGBUS: MAPPED,
    128 + signal.SIGBUS: MAPPED,
}


class StorageError(WirecostError):
    """Raised for a file that can't be written or read because the storage fails."""

    def __init__(self, path: object, fault: Fault) -> None:
        super().__init__(f"{path}: {fault.what}; {fault.remedy}")
        self.path = path
        self.fault = fault


def fault_of(error: BaseException) -> Fault | None:
    """Returns the storage fault that caused an error or that its text names; None for an error of another kind."""
    return next((fault for cause in _chain(error) if (fault := _own_fault(cause)) is not None), None)


def tells_of_fault(text: str) -> Fault | None:
    """Returns the fault that a message or a line of a log names; None if it names none."""
    return next((fault for known_text, fault in _TEXTS.items() if known_text in text), None)


def path_of(error: BaseException) -> str | None:
    """Returns the path of the file that an error or one of its causes names; None if none does."""
    for cause in _chain(error):
        if isinstance(cause, StorageError):
            return str(cause.path)
        if isinstance(cause, OSError) and cause.filename is not None:
            return os.fsdecode(cause.filename) if isinstance(cause.filename, str | bytes) else None
    return None


def exit_code_of(error: BaseException) -> int | None:
    """Returns the exit code for the storage fault behind an error; None for an error of another kind."""
    fault = fault_of(error)
    return None if fault is None else fault.exit_code


def run_to_exit_code(act: Callable[[], object]) -> int:
    """Calls a function and returns the exit code of this process: 0, or that of a storage fault, which is printed.
    Errors of other kinds are raised.
    """
    try:
        act()
    except Exception as error:
        if (code := exit_code_of(error)) is None:
            raise
        with suppress(OSError):  # the log itself may not be writable
            traceback.print_exc()
        return code
    return 0


def fault_of_exit(code: int | None) -> Fault | None:
    """Returns the fault that a process's exit code stands for; None for another code.

    Args:
        code: the exit code, -N or 128 + N after signal N; None while the process runs.
    """
    return None if code is None else _BY_EXIT_CODE.get(code)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds `path` to an OSError that names no file, as those of writing, flushing, syncing and closing do."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(path)) from error


def write_file(path: Path, *content: str | bytes | memoryview) -> None:
    """Replaces a file atomically and durably; text is encoded as UTF-8. Raises OSError, which names the file."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for piece in content:
                file.write(piece.encode() if isinstance(piece, str) else piece)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException as error:  # an interruption too
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


class LineFile:
    """A file of ASCII lines that can be read while it grows. Leaving the context makes it durable and checks that
    it holds everything that was written.

    Raises:
        OSError: names the file if it can't be written or if written bytes are missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        path.unlink(missing_ok=True)
        # Appending writes at the file's current end: a gap in the place of lost bytes would hide the loss.
        self._file = path.open("ab", buffering=0)

    def write(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        with naming(self.path):
            # A write may take only a part of the data. Writing the rest then fails with the reason.
            remaining = memoryview(data)
            while remaining:
                written = self._file.write(remaining)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                remaining = remaining[written:]
        self._digest.update(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming(self.path), self._file as file:
            if kind is not None:
                return
            os.fsync(file.fileno())
            with self.path.open("rb") as written:
                digest = hashlib.file_digest(written, "sha256")
            if digest.digest() != self._digest.digest():
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))


def sync_directory(directory: Path) -> None:
    """Makes a directory's created, renamed and removed entries durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor, directory)
    finally:
        os.close(descriptor)


def sync(descriptor: int, path: Path) -> None:
    """Makes durable what any process wrote to an open file or directory. Some network file systems refuse to sync
    a descriptor that is open for reading; their refusal is ignored.

    Raises:
        OSError: names `path` if the storage fails.
    """
    try:
        with naming(path):
            os.fsync(descriptor)
    except OSError as error:
        if fault_of(error) is not None:
            raise


def check_room(directory: Path) -> None:
    """Checks a directory's file system, with one system call.

    Raises:
        StorageError: if it has no free blocks or no free inodes, or is read-only.
    """
    state = os.statvfs(directory)
    # Root may use the blocks and inodes that are reserved for it.
    blocks, inodes = (state.f_bfree, state.f_ffree) if os.geteuid() == 0 else (state.f_bavail, state.f_favail)
    if state.f_flag & os.ST_RDONLY:
        raise StorageError(directory, FAULTS[errno.EROFS])
    # File systems that don't count blocks or inodes report a total of 0.
    if (state.f_blocks and not blocks) or (state.f_files and not inodes):
        raise StorageError(directory, FAULTS[errno.ENOSPC])


def check_writable(directory: Path) -> None:
    """Raises OSError or StorageError unless `PROBE_BYTES` can be written into a directory, durably."""
    check_room(directory)
    probe = directory / ".probe"
    with naming(probe):
        try:
            with probe.open("wb") as file:
                # Zeros would take no space on a file system that compresses.
                file.write(os.urandom(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and its causes, nearest first."""
    visited_ids: set[int] = set()
    pending: list[object] = [error]
    while pending:
        cause = pending.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in visited_ids:
            continue
        visited_ids.add(id(cause))
        yield cause
        if isinstance(cause, WirecostError) and not isinstance(cause, StorageError):
            continue  # its message is complete; its causes have been handled
        pending.append(cause.__cause__)
        if not cause.__suppress_context__:
            pending.append(cause.__context__)
        if isinstance(cause, BaseExceptionGroup):
            pending += cause.exceptions
        failures = getattr(cause, "failures", None)
        if isinstance(failures, dict):
            # torch.distributed.checkpoint gives (error, stack) by rank.
            pending += [pair[0] for pair in failures.values() if isinstance(pair, tuple) and pair]


def _own_fault(error: BaseException) -> Fault | None:
    if isinstance(error, StorageError):
        return error.fault
    if isinstance(error, WirecostError):
        return None
    if isinstance(error, OSError) and error.errno in FAULTS:
        return FAULTS[error.errno]
    return tells_of_fault(str(error))
