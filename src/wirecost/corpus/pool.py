"""Processes that tokenize the parts of a corpus. Results come in the order of the parts."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from wirecost.closing import Closing
from wirecost.corpus.encoder import Encoder, Vocabulary, single_threaded
from wirecost.corpus.extract import Options, Part
from wirecost.corpus.sources import Source
from wirecost.corpus.tokenize import Tokenized, tokenize
from wirecost.errors import SpecError, WirecostError

RECORD_LIMIT_S = 120.0
"""Time in seconds that one record may take. Wikipedia's longest pages take one second. A longer one is hostile."""
_CHECK_S = 1.0
_AHEAD = 3
"""Number of parts for each process that wait or whose results wait for those before them."""


@dataclass(frozen=True)
class Setup:
    """What every process needs.

    Attributes:
        sentences, end_documents: see `tokenize`.
    """

    sources: tuple[Source, ...]
    options: Options
    vocabulary: Vocabulary
    sentences: bool
    end_documents: bool


class WorkerError(WirecostError):
    """Raised when processes end unexpectedly, for example because memory is short."""

    exit_code = 1


@dataclass
class _Job:
    """A part with the records of it that are left out, and its result."""

    part: Part
    skipped: set[int] = field(default_factory=set)
    failures: int = 0
    result: Tokenized | BaseException | None = None


class _Worker:
    """One process.

    Attributes:
        busy: shared memory: the number of the record that it works on, or -1, and since when (monotonic seconds).
    """

    def __init__(self, context: Any, setup: Setup) -> None:
        self.busy = context.RawArray("d", 2)
        self.busy[0] = -1
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, self.busy, setup), daemon=True)
        self.process.start()
        other.close()
        self.job: _Job | None = None

    def start(self, job: _Job) -> None:
        self.job = job
        self.busy[0] = -1
        self.connection.send((job.part, frozenset(job.skipped)))

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Pool(Closing):
    """Tokenizes parts in `workers` processes. Leaving its context ends them."""

    def __init__(self, setup: Setup, workers: int, *, record_limit_s: float = RECORD_LIMIT_S) -> None:
        self._setup = setup
        self._limit_s = record_limit_s
        # A forked process would inherit threads' locks and the other processes' pipes.
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(_Worker(self._context, setup))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def results(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Tokenized]]:
        """Yields each part with its tokens, in order.

        Raises:
            WirecostError: if a process raised it.
            WorkerError: if processes end repeatedly.
        """
        waiting = iter(parts)
        jobs: deque[_Job] = deque()
        again: deque[_Job] = deque()
        exhausted = False
        while True:
            for worker in self._workers:
                while worker.job is None and not (exhausted and not again):
                    if again:
                        job = again.popleft()
                    elif len(jobs) >= _AHEAD * len(self._workers):
                        break
                    else:
                        part = next(waiting, None)
                        if part is None:
                            exhausted = True
                            break
                        job = _Job(part)
                        jobs.append(job)
                    worker.start(job)
            while jobs and jobs[0].result is not None:
                job = jobs.popleft()
                if isinstance(job.result, BaseException):
                    raise job.result
                if job.result is not None:
                    yield job.part, job.result
            if not jobs:
                if exhausted:
                    return
                continue
            self._receive(again)

    def _receive(self, again: deque[_Job]) -> None:
        """Waits for results. A job whose process ended, or was ended because a record took too long, is put into
        `again`."""
        if all(worker.job is None for worker in self._workers):
            return
        ready = wait([worker.connection for worker in self._workers if worker.job is not None], _CHECK_S)
        for number, worker in enumerate(self._workers):
            job = worker.job
            if job is None:
                continue
            record, since = int(worker.busy[0]), worker.busy[1]
            if worker.connection in ready:
                with contextlib.suppress(EOFError, ConnectionError):
                    job.result = worker.connection.recv()
                    worker.job = None
                    continue
            elif record < 0 or time.monotonic() - since < self._limit_s:
                continue
            # The record at which a process ends or hangs is left out when the part is read again.
            worker.end()
            self._workers[number] = _Worker(self._context, self._setup)
            job.failures += 1
            if record >= 0:
                job.skipped.add(record)
            if record < 0 and job.failures > 1:
                job.result = WorkerError(
                    f"a process that reads {self._setup.sources[job.part.source].path} ended unexpectedly at byte "
                    f"{job.part.start}: probably memory is short; use fewer --workers"
                )
            else:
                again.append(job)


def _work(connection: Connection, busy: Any, setup: Setup) -> None:
    """Tokenizes parts until the other end of the connection is closed, also because its process was killed."""
    # Ctrl-C reaches all processes of the terminal. The first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    single_threaded()

    def on_record(number: int) -> None:
        busy[1] = time.monotonic()
        busy[0] = number

    encoder: Encoder | None = None
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            part, skipped = connection.recv()
            result: Tokenized | BaseException
            try:
                encoder = encoder or Encoder(setup.vocabulary)
                result = tokenize(
                    setup.sources[part.source],
                    part,
                    setup.options,
                    encoder,
                    sentences=setup.sentences,
                    end_documents=setup.end_documents,
                    skipped=skipped,
                    on_record=on_record,
                )
            except WirecostError as error:
                # Some of its subclasses can't be sent to another process.
                result = SpecError(str(error))
            except OSError as error:
                result = error
            busy[0] = -1
            connection.send(result)
