"""What every rank process does for its launcher: dies with it, says where it hangs, reports why it failed."""

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
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed")
"""What gloo says when a connection ends: on reading, or on writing (strerror of ECONNRESET and EPIPE)."""


def run_as_rank(directory: Path, body: Callable[[Path, int], None]) -> NoReturn:
    """Runs `body(directory, rank)`, the rank being RANK's, and ends the process."""
    # The launcher asks a rank that hangs where it is.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    rank = int(os.environ["RANK"])
    # For those who look with ps or top: forked, all have the command line of what they were forked from.
    name_process(f"rank-{rank}")
    try:
        body(directory, rank)
    except BaseException as error:  # noqa: BLE001 - whatever ends a rank is reported with its traceback
        code = exit_code_of(error)
        try:
            report_failure(directory, rank, error)
        except Exception as unreported:  # noqa: BLE001 - what the report can't say, the exit code may
            code = code or exit_code_of(unreported)
        leave(code or EXIT_FAILED)
    leave(0)


def leave(code: int) -> NoReturn:
    """Ends the process at once: interpreter shutdown can hang or abort in the threads of a library (gloo's,
    torch's). A log that can't be written changes the exit code to that fault's."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            code = exit_code_of(error) or code
    os._exit(code)


def classify(error: BaseException) -> str:
    """`storage` (see `wirecost.storage`), `oom`, `diverged`, `refused` (a user can mend it), `lost_peer` (another
    rank went away first) or `error`."""
    text = str(error)
    if fault_of(error) is not None:
        return "storage"
    if is_out_of_memory(error):
        return "oom"
    if isinstance(error, WirecostError):
        return "refused"
    if type(error).__name__ == "NonFiniteLossError":
        return "diverged"
    if any(sign in text for sign in LOST_PEER):
        return "lost_peer"
    return "error"


def report_failure(directory: Path, rank: int, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # the report holds it too
        sys.stderr.write(text)
    folder = directory / "failures"
    folder.mkdir(exist_ok=True)
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    kind = classify(error)
    if kind == "oom":
        # What PyTorch's allocator holds and how it could be set is in the traceback.
        first = re.split(r" Including non-PyTorch memory| Of the allocated memory", first)[0]
    failure: dict[str, object] = {
        "rank": rank,
        "kind": kind,
        "reason": first if kind == "refused" else f"{type(error).__name__}: {first}",
        "traceback": text,
    }
    if kind == "oom":
        failure["memory"] = out_of_memory(error).model_dump(mode="json")
    if kind == "storage":
        failure["path"] = path_of(error)
    partial = folder / f".rank-{rank}.json"
    partial.write_text(json.dumps(failure))
    partial.rename(folder / f"rank-{rank}.json")
