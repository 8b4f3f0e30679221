"""The progress of a study: who is told of it, and how that of a running experiment is read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wirecost.spec import AnyExperiment
from wirecost.study.estimate import TimeLeft
from wirecost.study.result import Damaged, Outcome


class Progress(Protocol):
    """Receiver of a study's progress; `left_s` is the estimated time to its end in seconds. A damaged result may
    belong to an experiment of this study (`planned`), and may be run again.
    """

    def damaged(self, experiment: Damaged, planned: bool, again: bool) -> None: ...
    def study_started(self, experiments: int, already_finished: int, left_s: float) -> None: ...
    def network_measured(self, label: str, failure: str | None) -> None: ...
    def experiments_added(self, more: int) -> None: ...
    def experiment_started(self, number: int, experiment: AnyExperiment) -> None: ...
    def iterations_done(self, done: int, total: int, left_s: float) -> None: ...
    def experiment_finished(self, experiment: AnyExperiment, outcome: Outcome) -> None: ...


class Silent:
    """Progress that is discarded."""

    def damaged(self, experiment: Damaged, planned: bool, again: bool) -> None: ...
    def study_started(self, experiments: int, already_finished: int, left_s: float) -> None: ...
    def network_measured(self, label: str, failure: str | None) -> None: ...
    def experiments_added(self, more: int) -> None: ...
    def experiment_started(self, number: int, experiment: AnyExperiment) -> None: ...
    def iterations_done(self, done: int, total: int, left_s: float) -> None: ...
    def experiment_finished(self, experiment: AnyExperiment, outcome: Outcome) -> None: ...


class Watch:
    """Reports the progress of a running experiment from the samples of its first rank."""

    def __init__(
        self, progress: Progress, experiment: AnyExperiment, rest: Sequence[AnyExperiment], time_left: TimeLeft
    ) -> None:
        self.progress = progress
        self.total = experiment.warmup + experiment.iterations
        self.rest_s = time_left.total(rest)
        self.own_s = time_left.seconds(experiment)
        self.started = time.monotonic()
        self.done = 0
        self._offset = 0

    def look(self, samples: Path) -> None:
        """Reports how many iterations the samples hold."""
        if samples.exists():
            # Only new lines are read: reading a long run's whole file ten times a second would slow down the run.
            with samples.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            self.done += new.count(b"\n")
            self.total = max(self.total, self.done)  # `min_time` may add iterations
            self._offset += len(new)
        own_left = max(self.own_s - (time.monotonic() - self.started), 0.0)
        self.progress.iterations_done(self.done, self.total, own_left + self.rest_s)
