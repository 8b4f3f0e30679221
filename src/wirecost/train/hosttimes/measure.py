"""Runs each variant in a process of its own, and lets them take turns.

A process that fails or hangs is ended, and the others go on. All processes live from the first round to the
last, so that the start of Python, PyTorch and the device is paid once.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from time import monotonic
from typing import IO, Any

from wirecost.breakdown.statistics import Spread
from wirecost.errors import SpecError
from wirecost.launch.processes import end_tree
from wirecost.spec import Workload
from wirecost.train.checks import check_workload
from wirecost.train.hosttimes.costs import MeasuredHost, Turns, derive, derive_layers
from wirecost.train.hosttimes.variants import LAYERS, VARIANTS, Cost, HostRequest, measurable

START_SHARE = 0.6
"""Share of the time limit in which a variant has to be ready. The rest is left for the rounds."""
TURN_S = 30.0
"""Longest turn in seconds. A turn takes less than a second on a GPU."""
MAX_ANSWER_BYTES = 1 << 22
MAX_REASON = 300
RANK = (sys.executable, "-m", "wirecost.train.hosttimes.rank")

Progress = Callable[[int, int, str], None]
"""Called with the number of finished rounds, the number of all rounds, and what has just been done."""


class VariantFailedError(Exception):
    """A variant's process doesn't answer any more. The message says why in one line."""


class VariantProcess:
    """The process of one variant. It is a context that ends the process.

    Args:
        command: the program that answers as `wirecost.train.hosttimes.rank` does.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        environment = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
        environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # as ranks of a study have
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            start_new_session=True,
        )
        self._received = b""

    def __enter__(self) -> VariantProcess:
        return self

    def __exit__(self, *_: object) -> None:
        end_tree(self.process.pid)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def tell(self, data: dict[str, Any]) -> None:
        """Sends a line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(data).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise VariantFailedError(self._ending()) from error

    def answer(self, until_s: float) -> dict[str, Any]:
        """Returns the next answer.

        Args:
            until_s: when to stop waiting, on the monotonic clock.

        Raises:
            VariantFailedError: without an answer, or with one that says why there is none.
        """
        line = self._line(until_s)
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise VariantFailedError("its process answered with something else than JSON") from error
        if not isinstance(data, dict):
            raise VariantFailedError("its process answered with something else than an object")
        if "failed" in data:
            raise VariantFailedError(str(data["failed"])[:MAX_REASON])
        return data

    def _line(self, until_s: float) -> bytes:
        stream = self.process.stdout
        assert stream is not None
        started_s = monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._received:
                # What has been answered is read however late it is.
                if not selector.select(max(until_s - monotonic(), 0)):
                    raise VariantFailedError(f"no answer in {max(monotonic() - started_s, 0):.0f} s")
                received = os.read(stream.fileno(), 1 << 16)
                self._received += received
                if not received or len(self._received) > MAX_ANSWER_BYTES:
                    raise VariantFailedError(self._ending())
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ending(self) -> str:
        """Returns how the process ended, with the last line that it wrote to stderr."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.returncode
        if code is None:
            return "its process closed its output"
        if code < 0:
            with suppress(ValueError):
                return f"its process was ended by {signal.Signals(-code).name}{self._last_line()}"
        return f"its process ended with exit code {code}{self._last_line()}"

    def _last_line(self) -> str:
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - 4096))
        lines = [line for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1].strip()[:MAX_REASON]}" if lines else ""


def measure_host(
    request: HostRequest, progress: Progress | None = None, *, command: Sequence[str] = RANK
) -> MeasuredHost:
    """Measures what collectives of tensor and sequence parallelism, units of ZeRO-3, transfers of a pipeline and
    layers cost the host.

    Each variant of the engine is rank 0 of a group that moves nothing. The host issues its iterations to an idle
    device. The differences to one rank are what the communication costs, and those between numbers and kinds of
    layers what layers cost.

    Args:
        command: the program of a variant's process.

    Returns:
        The times. Those of a variant that failed are unknown, with the reason.

    Raises:
        SpecError: if the engine can't train the workload.
    """
    if problem := check_workload(request.workload):
        raise SpecError(problem)
    report = progress or (lambda *_: None)
    turns: dict[Cost | None, Turns] = {cost: Turns() for cost in VARIANTS}
    end_s = monotonic() + request.limit_s
    with ExitStack() as stack:
        processes = {cost: stack.enter_context(VariantProcess(command)) for cost in VARIANTS}
        _start(request, processes, turns, report)
        for number in range(request.rounds):
            if monotonic() >= end_s or not processes:
                break
            for cost in list(processes):
                _turn(request, cost, processes, turns, end_s)
            report(number + 1, request.rounds, f"round {number + 1} of {request.rounds}")
    return _measured(request, turns)


def _start(
    request: HostRequest,
    processes: dict[Cost | None, VariantProcess],
    turns: dict[Cost | None, Turns],
    report: Progress,
) -> None:
    settings = {
        "workload": request.workload.model_dump(mode="json"),
        "precision": str(request.precision),
        "device": str(request.device),
        "micro_batch": request.micro_batch,
        "micro_batches": request.micro_batches,
        "warmup": request.warmup,
    }
    until_s = monotonic() + START_SHARE * request.limit_s
    for cost in list(processes):
        with _Failures(cost, processes, turns):
            processes[cost].tell({"cost": cost, "request": settings, "parent": os.getpid()})
    for cost in list(processes):
        with _Failures(cost, processes, turns):
            ready = processes[cost].answer(until_s)
            turns[cost].workload = Workload.model_validate(ready["workload"])
            turns[cost].device = ready["device"]
            turns[cost].calls = {(str(op), str(group)): int(number) for op, group, number in ready["calls"]}
        ended = turns[cost].failure
        report(0, request.rounds, f"{VARIANTS[cost].name}: {ended or 'ready'}")


def _turn(
    request: HostRequest,
    cost: Cost | None,
    processes: dict[Cost | None, VariantProcess],
    turns: dict[Cost | None, Turns],
    end_s: float,
) -> None:
    with _Failures(cost, processes, turns):
        processes[cost].tell({"iterations": request.iterations})
        # A turn that has begun may end a little late.
        answer = processes[cost].answer(min(monotonic() + TURN_S, end_s + TURN_S / 3))
        own = turns[cost]
        own.issue_s.append([float(value) for value in answer["issue_s"]])
        own.kept += [bool(kept) for kept in answer["kept_pace"] if kept is not None]
        if "baseline_s" in answer:
            own.baseline_s.append([float(value) for value in answer["baseline_s"]])
            own.kept += [bool(kept) for kept in answer["baseline_kept_pace"] if kept is not None]


class _Failures:
    """A context in which a variant's failure ends its process and is noted."""

    def __init__(
        self,
        cost: Cost | None,
        processes: dict[Cost | None, VariantProcess],
        turns: dict[Cost | None, Turns],
    ) -> None:
        self.cost, self.processes, self.turns = cost, processes, turns

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            return False
        if isinstance(error, VariantFailedError):
            reason = str(error)
        elif isinstance(error, (ValueError, TypeError, KeyError)):
            reason = "its process answered with something else than times"
        else:
            return False
        self.turns[self.cost].failure = reason
        self.processes.pop(self.cost).__exit__()
        return True


def _measured(request: HostRequest, turns: dict[Cost | None, Turns]) -> MeasuredHost:
    used = [each for each in turns.values() if each.workload is not None]
    workload = used[0].workload if used else None
    issue_s = {
        VARIANTS[cost].name: spread
        for cost, each in turns.items()
        if (spread := Spread.of([seconds for turn in each.issue_s for seconds in turn])) is not None
    }
    workload = workload or measurable(request.workload, None)
    costs = {cost: derive(cost, each, turns[None]) for cost, each in turns.items() if cost and cost not in LAYERS}
    layers = (turns[Cost.LAYER], turns[Cost.GATED_LAYER], turns[None])
    return MeasuredHost(
        workload=workload,
        precision=request.precision,
        device=request.device,
        device_name=used[0].device if used else None,
        micro_batch=request.micro_batch,
        micro_batches=request.micro_batches,
        issue_s=issue_s,
        costs=costs | derive_layers(*layers, workload, request.micro_batches),
    )
