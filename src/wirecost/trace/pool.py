"""Reads many files on all cores, in worker processes that hold one file at a time, so that memory is bounded.

The module doesn't use multiprocessing: fork isn't safe beside the threads of a table library, and spawn runs the
user's script again.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from wirecost.trace.file import read_file
from wirecost.trace.rank import Options, RankTrace
from wirecost.trace.source import ForeignFile, TraceError
from wirecost.trace.wire import Done, Failed, Job, Read, receive, send

# Below this many bytes of files a worker's start takes longer than the reading.
_SMALL_BYTES = 1 << 24

Outcome = list[RankTrace] | TraceError


def cores() -> int:
    return len(os.sched_getaffinity(0))


def read_all(
    paths: Sequence[Path],
    options: Options,
    *,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Returns the traces of each file in the order of `paths`, or a TraceError for a file that is not a trace.

    `progress` gets the number of bytes read, as stored in the file, in calls from the calling thread.
    """
    workers = min(jobs or cores(), len(paths))
    if workers <= 1 or sum(p.stat().st_size for p in paths) < _SMALL_BYTES:
        outcomes: list[Outcome] = []
        for path in paths:
            try:
                outcomes.append(read_file(path, options, progress))
            except TraceError as error:
                outcomes.append(error)
        return outcomes
    return _in_workers(paths, options, workers, progress)


def _in_workers(
    paths: Sequence[Path], options: Options, workers: int, progress: Callable[[int], None] | None
) -> list[Outcome]:
    # The largest first, so that no core is left with one at the end.
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in sorted(range(len(paths)), key=lambda i: -paths[i].stat().st_size):
        todo.put(index)
    results: queue.SimpleQueue[tuple[int, Outcome] | int | BaseException] = queue.SimpleQueue()
    environment = dict(os.environ)
    package = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (package, environment.get("PYTHONPATH", "")) if p)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(workers):
            # -P: a file next to the traces that is named like a module must not be imported.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "wirecost.trace.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # Ctrl-C reaches only the caller, also while the worker starts.
                process_group=0,
            )
            started.append(process)
            threading.Thread(target=_serve, args=(process, paths, options, todo, results), daemon=True).start()
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(paths):
            message = results.get()
            if isinstance(message, BaseException):
                raise message
            if isinstance(message, int):
                if progress is not None:
                    progress(message)
            else:
                outcomes[message[0]] = message[1]
        return [outcomes[i] for i in range(len(paths))]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _serve(
    process: subprocess.Popen[bytes],
    paths: Sequence[Path],
    options: Options,
    todo: queue.SimpleQueue[int],
    results: queue.SimpleQueue[tuple[int, Outcome] | int | BaseException],
) -> None:
    """Gives files from the queue to one worker and passes its answers on. It runs in its own thread."""
    assert process.stdin is not None and process.stdout is not None
    index = None
    try:
        while True:
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            send(process.stdin, Job(os.fsencode(paths[index]), options))  # pyright: ignore[reportArgumentType]
            while True:
                answer = receive(process.stdout)  # pyright: ignore[reportArgumentType]
                if isinstance(answer, Read):
                    results.put(answer.count)
                elif isinstance(answer, Done):
                    results.put((index, answer.traces))
                    break
                elif isinstance(answer, Failed):
                    results.put((index, (ForeignFile if answer.foreign else TraceError)(answer.message)))
                    break
                else:
                    raise TraceError(
                        f"{paths[index]}: the process that read it ended without an answer (exit code "
                        f"{process.wait()}; out of memory?)"
                    )
    except OSError:
        where = paths[index] if index is not None else "the traces"
        results.put(TraceError(f"{where}: the process that read it has ended (out of memory?)"))
    except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
        results.put(error)
