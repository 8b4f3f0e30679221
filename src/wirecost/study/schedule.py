"""The experiments of a study that are known: those of the matrix, and trials for the largest batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wirecost.spec import AnyExperiment, BatchSearch, Experiment, Study
from wirecost.study.largest_batch import next_batch, predicted_memory, ran_out, trials_in


def scheduled(
    study: Study, directory: Path, memory_bytes: Callable[[], int | None] = lambda: None
) -> list[AnyExperiment]:
    """Returns the experiments of a study that are known now, in its order.

    A search for the largest micro-batch contributes the trials that were made and the next one. When it has
    ended, it contributes the largest micro-batch over every network. If memory runs out there, it contributes the
    next smaller one that was tried. More experiments may therefore be known after one has finished.

    Args:
        directory: directory of the store's results.
        memory_bytes: returns the memory of a rank where the study doesn't state it, or None. Without it the next
            trial stands for a micro-batch that is found later.
    """
    searches = study.batch_searches()
    experiments: list[AnyExperiment] = list(study.experiments())
    if not searches:
        return experiments
    names: list[str] = []
    with suppress(OSError):
        names = [name for name in os.listdir(directory) if not name.startswith(".")]  # noqa: PTH208
    known = {e.slug: e for e in experiments}
    for search in searches:
        for experiment in _of_search(search, directory, names, memory_bytes):
            known.setdefault(experiment.slug, experiment)
    return list(known.values())


def _of_search(
    search: BatchSearch, directory: Path, names: list[str], memory_bytes: Callable[[], int | None]
) -> list[Experiment]:
    trials, others = trials_in(directory, search, names)
    made = sorted([*(search.at(t.micro_batch) for t in trials), *others], key=lambda e: e.micro_batch)
    if others:
        return made  # the search goes on when they have run again
    first = search.at(1)
    memory = first.memory or memory_bytes()
    batch = next_batch(trials, memory, predicted_memory(first), search.start)
    if batch is not None:
        return [*made, search.at(batch)]
    there = set(names)
    for found in sorted((t.micro_batch for t in trials if t.fits), reverse=True):
        every = search.with_batch(found)
        finished = [e for e in every if e.slug in there]
        if not any(ran_out(directory, e) for e in finished):
            return [*made, *every]
        made += finished  # a batch at the very limit doesn't fit in every run: the next smaller one does
    return made
