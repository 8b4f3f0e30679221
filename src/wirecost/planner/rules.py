"""Rules of thumb for choosing a plan: whether the fastest plan obeys them, and what disobeying costs here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wirecost.planner.choices import Choice
from wirecost.planner.search import Found


@dataclass(frozen=True)
class Rule:
    """A rule of thumb and what the model says of it.

    Attributes:
        name: the rule.
        obeyed: whether the fastest plan obeys it. None if it doesn't apply.
        obeying, disobeying: the fastest plans that do and don't, with their iteration times in seconds. None if no
            plan that fits does.
    """

    name: str
    obeyed: bool | None
    obeying: tuple[Choice, float] | None
    disobeying: tuple[Choice, float] | None

    @property
    def cost(self) -> float | None:
        """How much longer the iteration of the fastest plan that disobeys takes than that of the fastest that
        obeys, as a share. Negative if it takes less. None if one of them doesn't exist."""
        if self.obeying is None or self.disobeying is None:
            return None
        return self.disobeying[1] / self.obeying[1] - 1


def rules_of(found: Found) -> list[Rule]:
    """Returns the rules of thumb for the plans of a search."""
    question = found.space.question
    per_node = question.cluster.gpus_per_node
    nodes = -(-question.gpus // per_node)
    tp, pp, dp, mb = (found.column(name) for name in ("tp", "pp", "dp", "mb"))
    rules: list[tuple[str, Callable[[], npt.NDArray[np.bool_] | None]]] = [
        (
            f"tensor parallelism stays inside a node (TP at most {per_node})",
            lambda: tp <= per_node if question.gpus > per_node else None,
        ),
        (
            f"as many pipeline stages as nodes, or more (PP at least {nodes})",
            lambda: pp >= nodes if nodes > 1 else None,
        ),
        ("the largest micro-batch that fits", lambda: _largest_micro_batch(found, mb)),
        (
            "data before tensor parallelism (the smallest TP x PP that fits)",
            lambda: (tp * pp == np.min(tp * pp)) if np.ptp(dp) else None,
        ),
    ]
    return [_rule(found, name, obeys()) for name, obeys in rules]


def _rule(found: Found, name: str, obeys: npt.NDArray[np.bool_] | None) -> Rule:
    if obeys is None or not len(found):
        return Rule(name, None, None, None)

    def fastest(mask: npt.NDArray[np.bool_]) -> tuple[Choice, float] | None:
        places = np.flatnonzero(mask)
        return None if not len(places) else (found.choice(int(places[0])), float(found.total_s[places[0]]))

    return Rule(name, bool(obeys[0]), fastest(obeys), fastest(~obeys))


def _largest_micro_batch(found: Found, mb: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_] | None:
    """Returns which plans have the largest micro-batch that fits with their other choices."""
    columns = found.space.columns
    degrees = np.stack([columns[name] for name in ("tp", "pp", "vpp", "cp", "ep")])
    _, group = np.unique(degrees, axis=1, return_inverse=True)
    key = group.reshape(-1)[found.row] * len(found.modes) + found.mode
    largest = np.zeros(int(key.max()) + 1 if len(key) else 0)
    np.maximum.at(largest, key, mb)
    return mb == largest[key]
