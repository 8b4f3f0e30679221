"""Provenance: what the figures of a GPU, a link or a software stack rest on."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from wirecost.spec.base import Spec


class Provenance(StrEnum):
    """What figures rest on. Intervals and warnings of predictions depend on this alone."""

    MEASURED = "measured"
    """Fitted to measurements of this very GPU, link or stack."""
    DERIVED = "derived"
    """Calculated from figures of a relative that was measured, or from a published total."""
    DATASHEET = "datasheet"
    """A vendor's nominal figures, with the usual efficiencies."""
    JUDGEMENT = "judgement"
    """Somebody's estimate, or nobody says."""


class Sourced(Spec):
    """A named specification that has a provenance. `source` names where its nominal figures are from;
    `calibration` what its efficiencies were fitted to, or derived from."""

    name: str
    source: str
    provenance: Provenance = Provenance.JUDGEMENT
    calibration: str | None = None

    @model_validator(mode="after")
    def _says_what_it_rests_on(self) -> Self:
        needs = {Provenance.MEASURED: "fitted to", Provenance.DERIVED: "derived from"}
        if self.provenance in needs and not self.calibration:
            raise ValueError(
                f"provenance {self.provenance} needs the key 'calibration', which says what the figures are "
                f"{needs[self.provenance]}"
            )
        return self

    @property
    def is_measured(self) -> bool:
        """Whether the figures were fitted to measurements of this very thing."""
        return self.provenance is Provenance.MEASURED
