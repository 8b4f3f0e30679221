"""What a fit leaves over of each workload that it has runs of, and how well such runs predict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wirecost.calibration.observed import Observed
from wirecost.model.seen import key_of, left_over
from wirecost.spec.stack import Seen

ENGINE = ("forward", "backward", "optimizer")
FEWEST = 3
"""Runs that must have been predicted by others before their errors say something."""


def seen_workloads(runs: Sequence[Observed], modelled: Mapping[str, np.ndarray]) -> tuple[Seen, ...]:
    """Each workload and micro-batch of the runs whose phases were measured.

    Args:
        modelled: seconds of each run by part, as `Observed.parts` has them.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, run in enumerate(runs):
        if all(part in run.parts for part in ENGINE):
            groups.setdefault((*key_of(run.workload).values(), run.micro_batch), []).append(index)
    found = []
    for members in groups.values():
        least = min(runs[i].noise for i in members)
        quiet = [i for i in members if runs[i].noise == least]  # disturbed runs count where there are no others

        def mean(*parts: str, quiet: list[int] = quiet) -> float:
            ratios = [sum(runs[i].parts[p] for p in parts) / sum(modelled[p][i] for p in parts) for i in quiet]
            return round(float(np.exp(np.mean(np.log(ratios)))), 5)

        run = runs[members[0]]
        found.append(
            Seen(
                key=key_of(run.workload),
                micro_batch=run.micro_batch,
                runs=len(quiet),
                compute=mean("forward", "backward"),
                optimizer=mean("optimizer"),
            )
        )
    return tuple(found)


def seen_spread(runs: Sequence[Observed], seen: Sequence[Seen], least: float) -> float | None:
    """The 90 % quantile of |log(measured / predicted)| of micro-batches predicted by those of the same workload on
    either side of them; None for too few."""
    errors = []
    for one in seen:
        others = [other for other in seen if other.key == one.key and other is not one]
        sizes = [other.micro_batch for other in others]
        if not sizes or not min(sizes) < one.micro_batch < max(sizes):
            continue
        run = next(run for run in runs if key_of(run.workload) == one.key)
        left = left_over(others, run.workload, one.micro_batch)
        assert left is not None
        errors.append(abs(np.log(one.compute / left.compute)))
    if len(errors) < FEWEST:
        return None
    return max(least, float(np.quantile(errors, 0.9, method="higher")))
