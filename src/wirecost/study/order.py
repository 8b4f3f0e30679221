"""The order in which the experiments of a study run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar

from wirecost.spec import AnyExperiment, Study

E = TypeVar("E", bound=AnyExperiment)


def in_run_order(study: Study, experiments: Iterable[E]) -> list[E]:
    """Returns experiments in the order in which they run.

    Without repeats it is the study's order. With repeats it is that of a randomised complete block design: the
    first run of every experiment in random order, then the second run of every experiment in another random
    order, and so on. A machine that becomes slower over hours then slows down all networks alike, and the
    difference between repeats shows it. The order follows from the study's seed and the experiments' names, so
    that a run that is resumed has the same one.
    """
    experiments = list(experiments)
    if study.repeats == 1:
        return experiments

    def place(experiment: E) -> tuple[int, bytes]:
        return experiment.repeat, hashlib.sha256(f"{study.seed} {experiment.slug}".encode()).digest()

    return sorted(experiments, key=place)
