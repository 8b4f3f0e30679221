"""Compares a study's predictions with its measurements: each experiment, the errors, the order of
the strategies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wirecost.breakdown import Breakdown
from wirecost.diagnostics import Diagnostic
from wirecost.errors import SpecError
from wirecost.prediction.matched import Matched, without_digest
from wirecost.spec import Experiment, JobExperiment
from wirecost.study.store import Result

LEVEL = 1e-6
"""Relative difference up to which predicted times count as equal: the same part of the iteration (for example the
host's launches) determines both.
"""
TIE = 0.03
"""Relative difference up to which measured times of strategies count as equal, as do times within each other's
quartiles.
"""


@dataclass(frozen=True)
class ExperimentError:
    """One experiment: medians in seconds and as fractions. `error` is predicted / measured - 1, of fractions the
    difference; `diagnostics` are the codes of the measurement's diagnostics."""

    cell: str
    workload: str
    network: str
    plan: str
    scaling: str
    ranks: int
    global_batch: int
    measured_s: float
    predicted_s: float
    error: float
    measured_fraction: float | None
    predicted_fraction: float | None
    fraction_error: float | None
    in_interval: bool | None
    diagnostics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """The strategies of one workload, network and scale from the fastest to the slowest."""

    workload: str
    network: str
    scaling: str
    ranks: int
    global_batch: int
    measured: tuple[str, ...]
    predicted: tuple[str, ...]
    level: tuple[str, ...]  # strategies of `predicted` with the same time as the one before
    wrong_pairs: tuple[
        tuple[str, str], ...
    ]  # (measured faster, measured slower) that are predicted in reverse order
    pairs: int  # pairs that differ by more than the measurements' spread


@dataclass(frozen=True)
class StudyValidation:
    """Every experiment that was predicted and measured, and those left out with the reason."""

    cells: tuple[ExperimentError, ...]
    orders: tuple[Order, ...]
    left_out: tuple[tuple[str, str], ...]
    unusable: tuple[Diagnostic, ...] = ()
    """One diagnostic for each entry of the store that can't be used."""

    def summary(self, cells: Sequence[ExperimentError] | None = None) -> dict[str, Any]:
        """Returns mean errors, bias and the interval coverage of all experiments or of some."""
        mine = self.cells if cells is None else cells
        fractions = [c.fraction_error for c in mine if c.fraction_error is not None]
        bounded = [c.in_interval for c in mine if c.in_interval is not None]
        worst = max(mine, key=lambda c: abs(c.error))
        return {
            "cells": len(mine),
            "mape": sum(abs(c.error) for c in mine) / len(mine),
            "bias": sum(c.error for c in mine) / len(mine),
            "worst": worst.cell,
            "max_ape": abs(worst.error),
            "mean_fraction_error": sum(map(abs, fractions)) / len(fractions) if fractions else None,
            "interval_coverage": sum(bounded) / len(bounded) if bounded else None,
        }

    def by(self, key: str) -> dict[str, dict[str, Any]]:
        """Returns the summary of each network, plan or workload."""
        names = dict.fromkeys(str(getattr(c, key)) for c in self.cells)
        return {name: self.summary([c for c in self.cells if str(getattr(c, key)) == name]) for name in names}

    @property
    def pairs_right(self) -> tuple[int, int]:
        """Returns the number of strategy pairs in the right order, and that of all pairs that
        measurably differ.
        """
        pairs = sum(order.pairs for order in self.orders)
        return pairs - sum(len(order.wrong_pairs) for order in self.orders), pairs

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        right, pairs = self.pairs_right
        return {
            "format_version": 2,
            "unit": "s",
            "summary": self.summary(),
            "by_network": self.by("network"),
            "by_plan": self.by("plan"),
            "cells": [asdict(c) | {"doubts": c.diagnostics} for c in self.cells],
            "orders": [asdict(o) for o in self.orders],
            "pairs_right": right,
            "pairs": pairs,
            "left_out": [{"cell": cell, "reason": reason} for cell, reason in self.left_out],
        }


def validate_study(
    results: Sequence[Result], predictions: Mapping[str, Breakdown], damaged: Mapping[str, str] | None = None
) -> StudyValidation:
    """Returns the comparison of a study's predictions with its measurements.

    Args:
        damaged: the reason for each measured experiment that can't be used, by its name.

    Raises:
        SpecError: if no measured experiment has a prediction.
    """
    damaged = damaged or {}
    matched = Matched(predictions)
    experiments, left_out, predicted_slugs = [], [], set()
    spreads: dict[str, tuple[float, float]] = {}
    for result in results:
        slug = result.experiment.slug
        if isinstance(result.experiment, JobExperiment):
            left_out.append((slug, "a command, whose model is unknown, so that nothing predicts it"))
            continue
        predicted = matched.of(slug)
        if predicted is None:
            left_out.append((slug, "measured, but not predicted"))
            continue
        predicted_slugs.add(without_digest(slug))
        if result.breakdown is None:
            left_out.append((slug, f"predicted, but the run ended as {result.outcome.status}"))
            continue
        time = result.breakdown.iteration_ns()
        if time is None:
            left_out.append((slug, "predicted, but the run has no iterations"))
            continue
        spreads[slug] = (time.q1 * 1e-9, time.q3 * 1e-9)
        experiments.append(_error(result.experiment, result.breakdown, predicted))
    left_out += [(slug, f"measured, but damaged: {reason}") for slug, reason in damaged.items()]
    predicted_slugs |= {without_digest(slug) for slug in damaged}
    left_out += [
        (slug, "predicted, but not measured")
        for slug in predictions
        if without_digest(slug) not in predicted_slugs
    ]
    if not experiments:
        raise SpecError("no measured cell of this study has a prediction: were they made from the same study?")
    return StudyValidation(tuple(experiments), tuple(_orders(experiments, spreads)), tuple(left_out))


def _error(experiment: Experiment, measured: Breakdown, predicted: Breakdown) -> ExperimentError:
    time, predicted_time = measured.iteration_ns(), predicted.iteration_ns()
    assert time is not None
    assert predicted_time is not None
    fractions = measured.comm_fraction(), predicted.comm_fraction()
    of_measured, of_predicted = (f.median if f else None for f in fractions)
    interval = predicted.interval
    return ExperimentError(
        cell=experiment.slug,
        workload=experiment.workload.name,
        network=experiment.network.name,
        plan=experiment.plan.name,
        scaling=str(experiment.scaling),
        ranks=experiment.ranks,
        global_batch=experiment.global_batch,
        measured_s=time.median * 1e-9,
        predicted_s=predicted_time.median * 1e-9,
        error=predicted_time.median / time.median - 1,
        measured_fraction=of_measured,
        predicted_fraction=of_predicted,
        fraction_error=of_predicted - of_measured
        if of_measured is not None and of_predicted is not None
        else None,
        in_interval=interval.low_ns <= time.median <= interval.high_ns if interval else None,
        diagnostics=tuple(d.code for d in measured.diagnostics),
    )


def _orders(cells: Sequence[ExperimentError], spreads: Mapping[str, tuple[float, float]]) -> list[Order]:
    groups: dict[tuple[str, str, str, int, int], list[ExperimentError]] = {}
    for cell in cells:
        key = (cell.workload, cell.network, cell.scaling, cell.ranks, cell.global_batch)
        groups.setdefault(key, []).append(cell)
    orders = []
    for key, mine in groups.items():
        if len(mine) < 2:
            continue
        measured = sorted(mine, key=lambda c: c.measured_s)
        predicted = sorted(mine, key=lambda c: c.predicted_s)
        wrong, pairs = [], 0
        for index, fast in enumerate(measured):
            for slow in measured[index + 1 :]:
                apart = math.log(slow.measured_s / fast.measured_s) > TIE
                if not apart or spreads[fast.cell][1] >= spreads[slow.cell][0]:
                    continue
                pairs += 1
                if fast.predicted_s >= slow.predicted_s:
                    wrong.append((fast.plan, slow.plan))
        level = [c.plan for b, c in itertools.pairwise(predicted) if c.predicted_s <= b.predicted_s * (1 + LEVEL)]
        orders.append(
            Order(
                *key,
                measured=tuple(c.plan for c in measured),
                predicted=tuple(c.plan for c in predicted),
                level=tuple(level),
                wrong_pairs=tuple(wrong),
                pairs=pairs,
            )
        )
    return orders
