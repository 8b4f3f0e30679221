"""Locks of a store: of one run, and of the experiments that runs which share it claim."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirecost.storage import StorageError, fault_of, path_of
from wirecost.study.store_errors import StoreError

POLL_S = 0.2
CLAIMS = ".claims"
"""Folder of the locks by which runs that share a store claim experiments."""


@contextmanager
def locked(root: Path, experiments: Path, *, shared: bool = False, wait_s: float = 0.0) -> Iterator[None]:
    """Locks the store at `root` for one run.

    Args:
        experiments: its folder of experiments, which is made if there is none.
        shared: let other runs that share it work at the same time. They claim each experiment (`claimed`).
        wait_s: time in seconds to wait for another run to end.

    Raises:
        StoreError: if another run has locked it, or it can't be written or read when it is locked or while the
            context is active.
    """
    try:
        experiments.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        fault = fault_of(error)
        remedy = f"; {fault.remedy}" if fault else ""
        raise StoreError(f"{error.filename}: can't be written: {error.strerror}{remedy}") from error
    try:
        try:
            _lock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait_s)
        except BlockingIOError as error:
            raise StoreError(f"{root}: another run is writing here; wait for it or use --out") from error
        except OSError as error:
            raise StoreError(f"{root}: can't be locked: {error.strerror}; choose another --out") from error
        try:
            yield
        except (OSError, StorageError) as error:
            message = _message(root, error)
            if message is None:
                raise
            raise StoreError(f"{message}, then go on with --resume (finished experiments are kept)") from error
    finally:
        os.close(lock)


@contextmanager
def claimed(root: Path, name: str) -> Iterator[bool]:
    """Claims an experiment by its name among runs that share the store at `root`. Yields False if another run has
    claimed it.

    A claim ends with the process that holds it, however that ends.

    Raises:
        OSError: if the claim can't be written.
    """
    folder = root / CLAIMS
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _message(root: Path, error: OSError | StorageError) -> str | None:
    """Returns the error's message with a remedy; None for an error that concerns neither the storage nor this
    store.
    """
    if isinstance(error, StorageError):
        return str(error)
    path, fault = path_of(error), fault_of(error)
    if fault is not None:
        return str(StorageError(path or root, fault))
    if path is not None and Path(path).absolute().is_relative_to(root.absolute()):
        remedy = "give yourself the right to it" if isinstance(error, PermissionError) else "move it away"
        return f"{path}: can't be used: {error.strerror or error}; {remedy}"
    return None


def _lock(file: int, kind: int, wait_s: float) -> None:
    """Locks an open file. Raises BlockingIOError if another process has it longer than `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return
