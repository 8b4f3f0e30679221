"""Which prediction is an experiment's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wirecost.breakdown import Breakdown


class Matched:
    """Predicted breakdowns by the experiment's slug. An experiment with, say, more iterations has the
    same prediction, where only one can be meant."""

    def __init__(self, predictions: Mapping[str, Breakdown]) -> None:
        self._exact = predictions
        counts = Counter(map(without_digest, predictions))
        self._alike = {
            k: breakdown for slug, breakdown in predictions.items() if counts[k := without_digest(slug)] == 1
        }

    def of(self, slug: str) -> Breakdown | None:
        """Returns an experiment's prediction; None where there is none."""
        return self._exact.get(slug) or self._alike.get(without_digest(slug))


def without_digest(slug: str) -> str:
    """Returns a slug without what tells apart settings that predictions don't depend on."""
    return slug.rpartition("_")[0]
