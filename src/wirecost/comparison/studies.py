"""Compares two studies: each experiment of one with its counterpart in the other."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.comparison.breakdowns import compare, compare_repeats
from wirecost.comparison.result import Comparison
from wirecost.errors import WirecostError

if TYPE_CHECKING:
    from wirecost.spec import AnyExperiment
    from wirecost.study.store import Result

# Keys that describe how an experiment was measured. They don't identify the experiment.
_HOW = frozenset(("iterations", "min_time", "warmup", "profile_iterations", "timeout", "seed", "repeat"))


@dataclass(frozen=True)
class Pair:
    """An experiment that both studies measured."""

    workload: str
    plan: str
    network: str
    ranks: int
    global_batch: int | None
    comparison: Comparison


@dataclass(frozen=True)
class StudyComparison:
    """`differing` are the properties in which the studies as a whole differ, each with both values."""

    differing: dict[str, tuple[str, str]]
    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "differing": self.differing,
            "pairs": [{**asdict(p), "comparison": p.comparison.to_dict()} for p in self.pairs],
            "only_before": self.only_before,
            "only_after": self.only_after,
        }


def compare_studies(before: Path, after: Path) -> StudyComparison:
    """Compares the finished experiments of two studies.

    Two experiments are counterparts if they differ only in properties that have one value throughout the first
    study and another value throughout the second.

    Raises:
        WirecostError: if a study can't be read, or if no experiment is in both.
    """
    from wirecost.spec import JobExperiment, plan_name, workload_name
    from wirecost.study.store import Store

    sides = [[r for r in Store(root).results() if r.breakdown is not None] for root in (before, after)]
    for root, results in zip((before, after), sides, strict=True):
        if not results:
            raise WirecostError(f"{root}: holds no finished experiment")
    properties = [[_properties(r.experiment) for r in results] for results in sides]
    differing = _differing(*properties)
    keyed = [_by_key(results, listed, set(differing)) for results, listed in zip(sides, properties, strict=True)]
    both = [key for key in keyed[0] if key in keyed[1]]
    if not both:
        raise WirecostError(
            f"{before} and {after} have no experiment in common: no two experiments differ only in properties "
            "that are constant within each study"
        )
    pairs = []
    for key in both:
        a, b = ([r.breakdown for r in side[key] if r.breakdown is not None] for side in keyed)
        e = keyed[0][key][0].experiment
        pairs.append(
            Pair(
                workload=workload_name(e),
                plan=plan_name(e),
                network=e.network.name,
                ranks=e.ranks,
                global_batch=None if isinstance(e, JobExperiment) else e.global_batch,
                comparison=compare(a[0], b[0]) if len(a) == len(b) == 1 else compare_repeats(a, b),
            )
        )
    only = [
        tuple(r.directory.name for key, repeats in side.items() if key not in set(both) for r in repeats)
        for side in keyed
    ]
    return StudyComparison(differing, tuple(pairs), only[0], only[1])


def _properties(experiment: AnyExperiment) -> dict[str, str]:
    """Returns the properties that identify an experiment, each as JSON text."""
    document = experiment.model_dump(mode="json")
    return {k: json.dumps(v, sort_keys=True) for k, v in document.items() if k not in _HOW}


def _differing(before: list[dict[str, str]], after: list[dict[str, str]]) -> dict[str, tuple[str, str]]:
    """Returns the properties with one value throughout one side and another value throughout the other."""
    differing = {}
    for name in before[0].keys() & after[0].keys():
        values = [{p[name] for p in side} for side in (before, after)]
        if len(values[0]) == len(values[1]) == 1 and values[0] != values[1]:
            differing[name] = (_short(values[0].pop()), _short(values[1].pop()))
    return differing


def _short(text: str) -> str:
    """Returns the name of a property's value if it has one, else the value itself."""
    value = json.loads(text)
    return str(value.get("name", text)) if isinstance(value, dict) else str(value)


def _by_key(results: list[Result], properties: list[dict[str, str]], without: set[str]) -> dict[str, list[Result]]:
    """Returns the repeats of each experiment by its identifying properties other than `without`; leaves out
    ambiguous ones."""
    repeats_of: dict[str, list[Result]] = defaultdict(list)
    for result, values in zip(results, properties, strict=True):
        key = json.dumps({k: v for k, v in values.items() if k not in without}, sort_keys=True)
        repeats_of[key].append(result)
    return {
        key: repeats
        for key, repeats in repeats_of.items()
        if len({r.experiment.repeat for r in repeats}) == len(repeats)
    }
