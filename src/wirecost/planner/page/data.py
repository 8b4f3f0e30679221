"""The data of the page: plans with their choices, times, memory and parts, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.planner.answer import Answer
from wirecost.planner.distinct import OTHER_DEGREES, OTHER_STACK, PART_ERRORS, UNFITTED
from wirecost.planner.explain import CAUSES
from wirecost.planner.parts import PARTS, parts_of
from wirecost.planner.schedules import SCHEDULES

MOST_PLANS = 20_000
"""Most plans on the page. Of more, the fastest, the Pareto front and an even selection of the others are shown."""
FASTEST = 5_000
_COUNTS = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb", "zero")
_FLAGS = ("sharding_group", "overlap", "sp", "recompute", "placement", "schedule")


def page_data(answer: Answer) -> dict[str, Any]:
    """Returns the plans as columns. Times are in seconds, memory in bytes."""
    found = answer.found
    places = shown_places(answer)
    parts = parts_of(found, places)
    stack = np.array([number for _, number in found.modes])[found.mode[places]]
    return {
        "place": places.tolist(),
        "time": _rounded(found.total_s[places]),
        "memory": _rounded(found.memory_bytes[places]),
        "choices": {
            **{name: found.column(name)[places].astype(int).tolist() for name in (*_COUNTS, *_FLAGS)},
            "stack": stack.tolist(),
        },
        "stacks": [each.name for each in answer.question.stacks],
        "words": {
            "sharding_group": ["all", "node"],
            "overlap": ["off", "on"],
            "sp": ["off", "on"],
            "recompute": ["none", "selective", "full"],
            "placement": ["tp_first", "pp_first", "dp_last"],
            "schedule": [schedule.value for schedule in SCHEDULES],
        },
        "parts": [_rounded(parts[:, column]) for column in range(len(PARTS))],
        "part_names": list(PARTS.values()),
        "part_causes": [CAUSES[key] for key in PARTS],
        "part_errors": [PART_ERRORS[key] for key in PARTS],
        "other_degrees": OTHER_DEGREES,
        "other_stack": OTHER_STACK,
        "unfitted": UNFITTED,
        "pareto": sorted(set(answer.pareto) & set(places.tolist())),
        "listed": [ranked.place for ranked in answer.ranked],
        "gpu_memory": float(answer.question.cluster.accelerator.memory_bytes),
        "tokens": answer.tokens,
        "total": len(found),
    }


def shown_places(answer: Answer) -> npt.NDArray[np.int64]:
    """Returns the places of the plans that the page shows, from the fastest on."""
    count = len(answer.found)
    if count <= MOST_PLANS:
        return np.arange(count)
    listed = np.array([*answer.pareto, *(ranked.place for ranked in answer.ranked)], dtype=np.int64)
    rest = np.linspace(FASTEST, count - 1, MOST_PLANS - FASTEST - len(listed)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(FASTEST), listed, rest]))


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    """Returns values with six significant digits, which keeps the page small."""
    return [float(f"{value:.6g}") for value in values.tolist()]
