"""Estimates the remaining time of a study from bytes / rate and from the experiments that are finished."""

from __future__ import annotations

from collections.abc import Iterable

from wirecost.collectives.traffic import ring_transfer_s
from wirecost.spec import AnyExperiment, JobExperiment, workload_name
from wirecost.spec.parameters import count

START_S = 3.0
"""Assumed time to start processes and measure links, until an experiment has finished."""
COMPUTE_S = 0.4


class TimeLeft:
    """Estimates the time that experiments take and learns from every finished one."""

    def __init__(self) -> None:
        self._compute_s: dict[tuple[str, int, int], float] = {}

    def seconds(self, experiment: AnyExperiment) -> float:
        """Returns the estimated time of a whole experiment in seconds."""
        compute = self._compute_s.get(_kind(experiment))
        if compute is None:
            known = list(self._compute_s.values())
            compute = sum(known) / len(known) if known else COMPUTE_S
        training = _iterations(experiment) * (compute + _network_s(experiment))
        return START_S + max(training, _min_time_s(experiment))

    def total(self, experiments: Iterable[AnyExperiment]) -> float:
        return sum(map(self.seconds, experiments))

    def learn(self, experiment: AnyExperiment, seconds: float) -> None:
        training = seconds - START_S
        if training < 2 * _min_time_s(experiment):
            return  # the number of iterations is unknown
        spent = training / _iterations(experiment) - _network_s(experiment)
        self._compute_s[_kind(experiment)] = max(0.0, spent)


def _kind(experiment: AnyExperiment) -> tuple[str, int, int]:
    batch = 0 if isinstance(experiment, JobExperiment) else experiment.global_batch
    return workload_name(experiment), experiment.ranks, batch


def _min_time_s(experiment: AnyExperiment) -> float:
    return 0.0 if isinstance(experiment, JobExperiment) else float(experiment.min_time)


def _iterations(experiment: AnyExperiment) -> int:
    return experiment.warmup + experiment.iterations


def _network_s(experiment: AnyExperiment) -> float:
    rate = experiment.network.emulate.rate if experiment.network.emulate else None
    if rate is None or experiment.ranks == 1 or isinstance(experiment, JobExperiment):
        return 0.0
    size = count(experiment.workload).total * experiment.plan.precision.bytes_per_element
    return ring_transfer_s("all_reduce", size, experiment.ranks, rate)
