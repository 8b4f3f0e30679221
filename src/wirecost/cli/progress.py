"""Shows progress as a bar with the time left, or as plain lines if stderr is no terminal."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from wirecost.spec import AnyExperiment, JobExperiment
from wirecost.study import Status
from wirecost.study.store import Damaged, Outcome
from wirecost.text import printable
from wirecost.units import format_duration_s, format_size_bytes

if TYPE_CHECKING:
    from wirecost.corpus.request import Estimate


def progress_bar(console: Console | None = None) -> Progress:
    """Returns a progress bar on stderr that vanishes at its end; it is disabled if stderr is no terminal. A task
    has the fields `count` and `left`.
    """
    console = console or Console(stderr=True, highlight=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=console,
        transient=True,
        # Output that is printed meanwhile must reach stdout, even if it is redirected.
        redirect_stdout=False,
        disable=not console.is_terminal,
    )


class _Shown:
    """A progress bar on stderr, and lines above it."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.bar = progress_bar(self.console)
        self.task: TaskID | None = None

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def _say(self, line: str) -> None:
        # The work continues if its progress can't be printed: the terminal is closed, or the log's disk is full.
        with contextlib.suppress(OSError):
            self.console.print(line, markup=False, soft_wrap=True)


class StudyProgress(_Shown):
    """Implements `wirecost.study.Progress` on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.experiments = 0
        self.number = 0
        self.left_out: list[Damaged] = []
        """Results of the study's experiments that are damaged and not run again."""

    def damaged(self, experiment: Damaged, planned: bool, again: bool) -> None:
        if planned and not again:
            self.left_out.append(experiment)
        what = "run again" if again else "left out; --resume --repair runs it again"
        if not planned:
            what = f"left out; it is no experiment of this study: delete {experiment.directory} if nobody needs it"
        self._say(f"damaged: {experiment.name}: {printable(experiment.reason)}; {what}")

    def study_started(self, experiments: int, already_finished: int, left_s: float) -> None:
        self.experiments = experiments
        finished = f", {already_finished} finished already" if already_finished else ""
        noun = "experiment" if experiments == 1 else "experiments"
        self._say(f"{experiments} {noun}{finished}; about {format_duration_s(left_s)}")
        self.task = self.bar.add_task("", total=experiments, completed=already_finished, count="", left="")

    def network_measured(self, label: str, failure: str | None) -> None:
        self._say(f"benchmark of {label}: {printable(failure) if failure else 'done'}")

    def experiments_added(self, more: int) -> None:
        self.experiments += more
        if self.task is not None:
            self.bar.update(self.task, total=self.experiments)

    def experiment_started(self, number: int, experiment: AnyExperiment) -> None:
        self.number = number
        if self.task is not None:
            self.bar.update(self.task, description=_short(experiment), count=f"{number + 1}/{self.experiments}")

    def iterations_done(self, done: int, total: int, left_s: float) -> None:
        if self.task is not None:
            self.bar.update(
                self.task,
                completed=self.number + done / (total + 1),
                left=f"about {format_duration_s(left_s)} left",
            )

    def experiment_finished(self, experiment: AnyExperiment, outcome: Outcome) -> None:
        took = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
        line = f"{self.number + 1}/{self.experiments} {_short(experiment)}: {outcome.status}{took}"
        if outcome.status is not Status.DONE and outcome.reason:
            line += f" ({printable(outcome.reason)})"
        self._say(line)


class CorpusProgress(_Shown):
    """Implements `wirecost.corpus.prepare.Progress` on stderr."""

    LINE_S = 60.0
    """Time in seconds between two lines, if stderr is no terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._line_s = time.monotonic()

    def stage(self, name: str) -> None:
        if self.task is None:
            self.task = self.bar.add_task("", total=None, count="", left="")
        self.bar.update(self.task, description=name)

    def estimated(self, estimate: Estimate) -> None:
        interval = f"{format_duration_s(estimate.least_s)} to {format_duration_s(estimate.most_s)}"
        self._say(
            f"{format_size_bytes(estimate.bytes)}: about {format_duration_s(estimate.seconds)} ({interval}), "
            f"{estimate.tokens:.3g} tokens"
        )

    def advanced(self, done: int, total: int, documents: int, tokens: int, left_s: float | None) -> None:
        left = f"about {format_duration_s(left_s)} left" if left_s is not None else ""
        count = f"{documents:,} documents, {tokens:,} tokens"
        if self.task is not None:
            self.bar.update(self.task, completed=done, total=total, count=count, left=left)
        if not self.console.is_terminal and time.monotonic() - self._line_s >= self.LINE_S:
            self._line_s = time.monotonic()
            self._say(f"{100 * done / max(total, 1):.1f} %, {count}, {left}")


def _short(e: AnyExperiment) -> str:
    if isinstance(e, JobExperiment):
        return f"{e.job.name} on {e.network.name}, {e.hosts} x {e.ranks_per_host}"
    return f"{e.workload.name} on {e.network.name}, {e.plan.name}, {e.scaling} <{e.ranks}, {e.global_batch}>"
