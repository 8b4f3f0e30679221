"""`wirecost.watch`: what communication costs the running job, every few iterations."""

from __future__ import annotations

import atexit
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wirecost.counters.ethernet import EthernetSource
from wirecost.errors import WirecostError
from wirecost.live.late import LEAST_S, LENGTHS, is_still_late, latest_late_rank
from wirecost.live.marks import IterationTimes, Marks
from wirecost.live.sinks import Sink, to_active_runs, to_prometheus, to_tensorboard
from wirecost.live.summary import Window, summarise

EXCHANGE_EVERY = 10
"""Number of iterations after which the ranks exchange their times, so that a late one is named soon."""
SENT = 2 * EXCHANGE_EVERY
"""Number of the latest iterations that an exchange sends. A GPU may finish an iteration long after its host."""
MOST_KEPT = 1000
"""Number of the latest iterations that a line describes at most, so that memory stays bounded."""


class Watch:
    """A running watch. `close` ends it, as leaving its context does.

    Attributes:
        latest: the window that was printed last, on rank 0. None before.
    """

    def __init__(self, every: int, print_line: Callable[[str], object], sinks: Sequence[Sink]) -> None:
        self._every = every
        self._print = print_line
        self._sinks = list(sinks)
        self._group: Any = None
        self._own: dict[int, IterationTimes] = {}
        self._taken = 0
        self._iterations: dict[int, list[IterationTimes]] = {}
        self._reported = 0
        self._late: int | None = None
        self._interfaces: EthernetSource | None = None
        self._counted: tuple[float, dict[str, tuple[int, int]]] | None = None
        self.latest: Window | None = None
        self._marks = Marks()
        self._marks.on_end = self._ended
        # The threads of a group that outlives the interpreter end the process: "terminate called without an active
        # exception".
        atexit.register(self.close)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes all hooks, and ends the process group that the ranks exchanged their times over."""
        atexit.unregister(self.close)
        self._marks.close()
        self._end_group()
        if self._interfaces is not None:
            self._interfaces.close()
            self._interfaces = None

    def _ended(self) -> None:
        number = self._marks.ended
        report = number > 0 and number % self._every == 0
        if not report and (number == 0 or number % EXCHANGE_EVERY):
            return
        for times in self._marks.take():
            self._taken += 1
            self._own[self._taken] = times
        numbers = range(max(1, number - SENT + 1), number + 1)
        self._own = {n: times for n, times in self._own.items() if n in numbers}
        ranks = self._exchanged(numbers)
        if ranks is None:
            return
        for n in numbers:
            times = [rank[n] for rank in ranks if n in rank]
            if n not in self._iterations and len(times) == len(ranks):
                self._iterations[n] = times
        self._name_late(number)
        if report:
            self._report(number)
        self._forget()

    def _name_late(self, number: int) -> None:
        """Prints the rank that has become late."""
        iterations = list(self._iterations.values())
        late = latest_late_rank(iterations)
        if late is not None and late != self._late:
            window = summarise(iterations[-LENGTHS[0] :])
            wait = f"{window.wait:.0%}" if window is not None and window.wait is not None else "a part"
            self._print(
                f"wirecost: iteration {number}: rank {late} is late, the ranks wait {wait} of an iteration for it"
            )
        # Without this, a rank that is late in most iterations would be named again and again.
        if late is not None or (self._late is not None and not is_still_late(iterations, self._late)):
            self._late = late

    def _report(self, number: int) -> None:
        window = summarise([times for n, times in self._iterations.items() if n > self._reported])
        if window is None:
            return
        self._reported = max(self._iterations)
        device, use_bps = self._use()
        self.latest = replace(window, device=device, use_bps=use_bps)
        self._print(f"wirecost: iteration {number}: {self.latest.line}")
        for sink in self._sinks:
            sink(self.latest.scalars(), number)

    def _forget(self) -> None:
        """Forgets iterations that neither the next line nor the search for a late rank needs."""
        span_s = 0.0
        needed = 0
        for n in sorted(self._iterations, reverse=True):
            new = n > self._reported or needed < LENGTHS[-1] or span_s < LEAST_S
            if not new or needed >= MOST_KEPT:
                del self._iterations[n]
                continue
            needed += 1
            span_s += max(times.iteration_s for times in self._iterations[n])

    def _exchanged(self, numbers: range) -> list[dict[int, IterationTimes]] | None:
        """Returns the times of all ranks by the iterations' numbers on rank 0, and None on the others."""
        import torch
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return [self._own]
        if self._group is None:
            # The job's own collectives must not wait behind this one.
            self._group = dist.new_group(backend="gloo")
        sent = torch.full((len(numbers), 2), math.nan, dtype=torch.float64)
        for place, n in enumerate(numbers):
            if (times := self._own.get(n)) is not None:
                sent[place, 0] = times.iteration_s
                sent[place, 1] = math.nan if times.tail_s is None else times.tail_s
        received = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
        dist.all_gather(received, sent, group=self._group)
        if dist.get_rank() != 0:
            return None
        return [
            {
                n: IterationTimes(iteration_s, None if math.isnan(tail_s) else tail_s)
                for n, (iteration_s, tail_s) in zip(numbers, rank.tolist(), strict=True)
                if not math.isnan(iteration_s)
            }
            for rank in received
        ]

    def _end_group(self) -> None:
        import torch.distributed as dist

        group, self._group = self._group, None
        # The job may have ended all groups before.
        if group is not None and dist.is_initialized():
            with suppress(ValueError):
                dist.destroy_process_group(group)

    def _use(self) -> tuple[str | None, float | None]:
        """Returns the busiest network interface since the last call and its rate in bits per second."""
        if self._interfaces is None:
            self._interfaces = EthernetSource()
        now_s = time.monotonic()
        counts = {r.device: (r.rx or 0, r.tx or 0) for r in self._interfaces.read()}
        before, self._counted = self._counted, (now_s, counts)
        if before is None or now_s <= before[0]:
            return None, None
        rates = {
            name: max(rx - before[1][name][0], tx - before[1][name][1]) * 8 / (now_s - before[0])
            for name, (rx, tx) in counts.items()
            if name in before[1]
        }
        busiest = max(rates, key=lambda name: (name != "lo", rates[name]), default=None)
        return (None, None) if busiest is None else (busiest, rates[busiest])


def watch(
    every: int = 100,
    *,
    tensorboard: Any = None,
    prometheus_port: int | None = None,
    log: Callable[[dict[str, float], int], None] | None = None,
    print_line: Callable[[str], object] | None = None,
) -> Watch:
    """Prints a line about the job's communication on rank 0 every few iterations.

    Every rank calls it once, before training. Iterations end with the step of the first optimizer. The exposed
    communication is known with DistributedDataParallel; otherwise the line says that it is unknown. Active runs of
    Weights & Biases and MLflow get the scalars as well.

    Args:
        every: number of iterations between two lines.
        tensorboard: a `torch.utils.tensorboard.SummaryWriter` that gets the scalars.
        prometheus_port: port of the loopback interface at which rank 0 serves them.
        log: called with the scalars by name and the iteration's number.
        print_line: replaces printing to standard error.

    Returns:
        The watch. Its `close` ends it.

    Raises:
        WirecostError: if `every` is below 1, PyTorch is missing or too old, or the port can't be used.
    """
    if every < 1:
        raise WirecostError(f"watch: every={every}, but at least 1 iteration lies between two lines")
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: F401
    except ImportError as error:
        raise WirecostError("watch: needs PyTorch 2.0 or newer in this process") from error
    import os

    sinks: list[Sink] = [to_active_runs()]
    if tensorboard is not None:
        sinks.append(to_tensorboard(tensorboard))
    if log is not None:
        sinks.append(log)
    if prometheus_port is not None and os.environ.get("RANK", "0") == "0":
        sinks.append(to_prometheus(prometheus_port))
    return Watch(every, print_line or _print_line, sinks)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
