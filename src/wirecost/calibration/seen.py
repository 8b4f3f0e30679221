"""What a fit leaves over of each workload that it has runs of, and how well such runs predict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wirecost.calibration.observed import Observed
from wirecost.model.seen import key_of, left_over
from wirecost.spec.stack import Seen

Key = tuple[tuple[str, int | str], ...]
ENGINE = ("forward", "backward", "optimizer")
FEWEST = 3
"""Runs that must have been predicted by others before their errors say something."""


def seen_workloads(runs: Sequence[Observed], modelled: Mapping[str, np.ndarray]) -> tuple[Seen, ...]:
    """Each workload and micro-batch of the runs whose phases were measured.

    Args:
        modelled: seconds of each run by part, as `Observed.parts` has them.
    """
    groups: dict[tuple[Key, int], list[int]] = {}
    for index, run in enumerate(runs):
        if all(part in run.parts for part in ENGINE):
            key = tuple(key_of(run.workload).items())
            groups.setdefault((key, run.micro_batch), []).append(index)
    waited: dict[Key, set[bool]] = {}
    for (key, _), members in groups.items():
        waited.setdefault(key, set()).add(all(runs[i].launch_bound for i in members))
    found = []
    for (key, _), members in groups.items():
        of_device = len(waited[key]) > 1  # with runs of both kinds device and host are told apart
        if of_device and all(runs[i].launch_bound for i in members):
            found.append(_of_host([runs[i] for i in members]))
            continue
        candidates = [i for i in members if not (of_device and runs[i].launch_bound)]
        least = min(runs[i].noise for i in candidates)
        quiet = [i for i in candidates if runs[i].noise == least]  # disturbed runs count where there are no others
        computed = modelled["forward"] + modelled["backward"]
        if of_device:
            computed = modelled["device"] - modelled["optimizer"]
        run = runs[members[0]]
        found.append(
            Seen(
                key=key_of(run.workload),
                micro_batch=run.micro_batch,
                runs=len(quiet),
                compute=_mean([_computed_s(runs[i]) / computed[i] for i in quiet]),
                optimizer=_mean([runs[i].parts["optimizer"] / modelled["optimizer"][i] for i in quiet]),
            )
        )
    return tuple(found)


def _of_host(runs: Sequence[Observed]) -> Seen:
    """Of runs that waited for the host: all of their time is its."""
    run = runs[0]
    return Seen(
        key=key_of(run.workload),
        micro_batch=run.micro_batch,
        runs=len(runs),
        host_s=_mean([_computed_s(one) / (one.global_batch / (one.micro_batch * one.ranks)) for one in runs]),
        host_once_s=_mean([one.parts["optimizer"] + one.parts.get("other", 0.0) for one in runs]),
    )


def _computed_s(run: Observed) -> float:
    return run.parts["forward"] + run.parts["backward"]


def _mean(values: Sequence[float]) -> float:
    """The geometric one, to five digits."""
    return float(f"{np.exp(np.mean(np.log(values))):.5g}")


def seen_spread(runs: Sequence[Observed], seen: Sequence[Seen], least: float) -> float | None:
    """The 90 % quantile of |log(measured / predicted)| of micro-batches predicted by those of the same workload on
    either side of them; None for too few."""
    errors = []
    told = [one for one in seen if one.compute is not None]
    for one in told:
        others = [other for other in told if other.key == one.key and other is not one]
        sizes = [other.micro_batch for other in others]
        if not sizes or not min(sizes) < one.micro_batch < max(sizes):
            continue
        run = next(run for run in runs if key_of(run.workload) == one.key)
        left = left_over(others, run.workload, one.micro_batch)
        assert left is not None
        assert one.compute is not None
        errors.append(abs(np.log(one.compute / left.compute)))
    if len(errors) < FEWEST:
        return None
    return max(least, float(np.quantile(errors, 0.9, method="higher")))
