"""Which prediction is a cell's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wirecost.breakdown import Breakdown


class Matched:
    """Predicted breakdowns by the experiment's slug. The same cell of a study with, say, more iterations is the
    same prediction, where only one can be meant."""

    def __init__(self, predictions: Mapping[str, Breakdown]) -> None:
        self._exact = predictions
        counts = Counter(map(without_digest, predictions))
        self._alike = {k: found for slug, found in predictions.items() if counts[k := without_digest(slug)] == 1}

    def of(self, slug: str) -> Breakdown | None:
        return self._exact.get(slug) or self._alike.get(without_digest(slug))


def without_digest(slug: str) -> str:
    return slug.rpartition("_")[0]
