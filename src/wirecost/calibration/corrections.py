"""The residual of each workload that there are runs of, and how well such runs predict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wirecost.calibration.inputs.runs import Observed
from wirecost.costmodel.workload_correction import key_of, residual_of
from wirecost.spec.stack_costs import WorkloadCorrection

Key = tuple[tuple[str, int | str], ...]
ENGINE = ("forward", "backward", "optimizer")
FEWEST = 3
"""Runs that must have been predicted by others before their errors say something."""


def workload_corrections(
    runs: Sequence[Observed], modelled: Mapping[str, np.ndarray]
) -> tuple[WorkloadCorrection, ...]:
    """Returns a correction for each workload and micro-batch of the runs whose phases were measured.

    Args:
        modelled: seconds of each run by part, as `Observed.parts` has them.
    """
    groups: dict[tuple[Key, int], list[int]] = {}
    for index, run in enumerate(runs):
        if all(part in run.parts for part in ENGINE):
            key = tuple(key_of(run.workload).items())
            groups.setdefault((key, run.micro_batch), []).append(index)
    bound: dict[Key, set[bool]] = {}
    for (key, _), members in groups.items():
        bound.setdefault(key, set()).add(all(runs[i].launch_bound for i in members))
    return tuple(
        _correction(runs, members, modelled, both_kinds=len(bound[key]) > 1)
        for (key, _), members in groups.items()
    )


def _correction(
    runs: Sequence[Observed], members: Sequence[int], modelled: Mapping[str, np.ndarray], *, both_kinds: bool
) -> WorkloadCorrection:
    """Returns the correction of runs of one workload and micro-batch. `both_kinds`: whether the workload has runs
    that waited for their host and runs that didn't, so that host and device are told apart."""
    if both_kinds and all(runs[i].launch_bound for i in members):
        return _of_host([runs[i] for i in members])
    candidates = [i for i in members if not (both_kinds and runs[i].launch_bound)]
    least = min(runs[i].noise for i in candidates)
    quiet = [i for i in candidates if runs[i].noise == least]  # disturbed runs count where there are no others
    computed = modelled["forward"] + modelled["backward"]
    if both_kinds:
        computed = modelled["device"] - modelled["optimizer"]
    run = runs[members[0]]
    return WorkloadCorrection(
        key=key_of(run.workload),
        micro_batch=run.micro_batch,
        runs=len(quiet),
        compute=_mean([_computed_s(runs[i]) / computed[i] for i in quiet]),
        optimizer=_mean([runs[i].parts["optimizer"] / modelled["optimizer"][i] for i in quiet]),
    )


def _of_host(runs: Sequence[Observed]) -> WorkloadCorrection:
    """Returns the correction of runs that waited for the host: all of their time is the host's."""
    first = runs[0]
    rounds = [run.global_batch / (run.micro_batch * run.ranks) for run in runs]
    return WorkloadCorrection(
        key=key_of(first.workload),
        micro_batch=first.micro_batch,
        runs=len(runs),
        host_s=_mean([_computed_s(run) / count for run, count in zip(runs, rounds, strict=True)]),
        host_once_s=_mean([run.parts["optimizer"] + run.parts.get("other", 0.0) for run in runs]),
    )


def _computed_s(run: Observed) -> float:
    return run.parts["forward"] + run.parts["backward"]


def _mean(values: Sequence[float]) -> float:
    """Returns the geometric mean to five digits."""
    return float(f"{np.exp(np.mean(np.log(values))):.5g}")


def correction_spread(
    runs: Sequence[Observed], corrections: Sequence[WorkloadCorrection], least: float
) -> float | None:
    """Returns the 90 % quantile of |log(measured / predicted)| of micro-batches that are predicted by those of the
    same workload on either side of them; None for too few."""
    errors = []
    of_device = [c for c in corrections if c.compute is not None]
    for correction in of_device:
        others = [c for c in of_device if c.key == correction.key and c is not correction]
        sizes = [c.micro_batch for c in others]
        if not sizes or not min(sizes) < correction.micro_batch < max(sizes):
            continue
        run = next(run for run in runs if key_of(run.workload) == correction.key)
        residual = residual_of(others, run.workload, correction.micro_batch)
        assert residual is not None
        assert correction.compute is not None
        errors.append(abs(np.log(correction.compute / residual.compute)))
    if len(errors) < FEWEST:
        return None
    return max(least, float(np.quantile(errors, 0.9, method="higher")))
