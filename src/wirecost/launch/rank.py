"""The part of every rank process that its launcher needs: stack dumps on request, and failure reports."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from wirecost.errors import WirecostError
from wirecost.launch.memory import is_out_of_memory, out_of_memory
from wirecost.launch.processes import name_process
from wirecost.storage import exit_code_of, fault_of, path_of

EXIT_FAILED = 3
OUT_OF_MEMORY = "out_of_memory"
LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket closed",
    "caused by a remote worker crashing",
)
"""Messages of gloo when a connection ends on reading or on writing (strerror of ECONNRESET and EPIPE), and of
PyTorch's callbacks after it."""


def run_as_rank(directory: Path, body: Callable[[Path, int], None]) -> NoReturn:
    """Runs `body(directory, rank)` and ends the process. The rank is that of the environment variable RANK.

    If `body` raises, the failure is reported (see `report_failure`) and the exit code is `EXIT_FAILED`.
    """
    # The launcher sends this signal to a rank that hangs, to learn where.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    rank = int(os.environ["RANK"])
    # Forked processes share a command line. The name distinguishes them in ps and top.
    name_process(f"rank-{rank}")
    try:
        body(directory, rank)
    except BaseException as error:  # noqa: BLE001 - every error that ends a rank is reported with its traceback
        code = exit_code_of(error)
        try:
            report_failure(directory, rank, error)
        except Exception as unreported:  # noqa: BLE001 - the exit code may say why the report can't be written
            code = code or exit_code_of(unreported)
        leave(code or EXIT_FAILED)
    leave(0)


def leave(code: int) -> NoReturn:
    """Ends the process without the interpreter's shutdown, which can hang or abort in threads of gloo or PyTorch.

    If the log can't be written because the storage fails, the exit code is that of the fault.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            code = exit_code_of(error) or code
    os._exit(code)


def classify(error: BaseException) -> str:
    """Returns the kind of an error that ended a rank.

    The kinds are `storage` (see `wirecost.storage`), `out_of_memory`, `diverged`, `refused` (the user can
    correct it), `lost_peer` (another rank ended first) and `error`.
    """
    text = str(error)
    if fault_of(error) is not None:
        return "storage"
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    if isinstance(error, WirecostError):
        return "refused"
    if type(error).__name__ == "NonFiniteLossError":
        return "diverged"
    if any(sign in text for sign in LOST_PEER):
        return "lost_peer"
    return "error"


def report_failure(directory: Path, rank: int, error: BaseException) -> None:
    """Prints an error with its traceback, and writes both to `directory`/failures/rank-R.json for the launcher."""
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # the report holds it too
        sys.stderr.write(text)
    folder = directory / "failures"
    folder.mkdir(exist_ok=True)
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    kind = classify(error)
    if kind == OUT_OF_MEMORY:
        # The state of PyTorch's allocator and its settings stay in the traceback.
        first_line = re.split(r" Including non-PyTorch memory| Of the allocated memory", first_line)[0]
    failure: dict[str, object] = {
        "rank": rank,
        "kind": kind,
        "reason": first_line if kind == "refused" else f"{type(error).__name__}: {first_line}",
        "traceback": text,
    }
    if kind == OUT_OF_MEMORY:
        failure["memory"] = out_of_memory(error).model_dump(mode="json")
    if kind == "storage":
        failure["path"] = path_of(error)
    partial = folder / f".rank-{rank}.json"
    partial.write_text(json.dumps(failure))
    partial.rename(folder / f"rank-{rank}.json")
