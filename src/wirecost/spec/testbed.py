"""Testbed: where a table's rows were measured, for what the rows themselves don't state."""

from __future__ import annotations

from pydantic import Field, model_validator

from wirecost.errors import one_of
from wirecost.spec.base import Spec
from wirecost.spec.plan import Precision, Recompute
from wirecost.spec.presets import names
from wirecost.spec.workload import Family


class Testbed(Spec):
    """The clusters and the software of one paper's measurements. A table names it; no table is taken to be of one.

    Attributes:
        clusters: names of cluster presets by the name, in lower case, that the table's `protocol` column has for
            their network.
        stack: name of the preset of the software stack.
        precision: precision of training.
        recompute: what each model family recomputed.
    """

    __test__ = False  # no test, whatever its name begins with

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    description: str = ""
    clusters: dict[str, str] = Field(min_length=1)
    stack: str
    precision: Precision
    recompute: dict[Family, Recompute] = {}
    source: str

    @model_validator(mode="after")
    def _presets_exist(self) -> Testbed:
        for kind, named in [("stack", self.stack), *(("cluster", c) for c in self.clusters.values())]:
            if named not in names(kind):
                raise ValueError(one_of(kind, named, names(kind)))
        return self

    def cluster(self, protocol: str) -> str:
        """Returns the preset of the cluster whose network a table calls `protocol`.

        Raises:
            ValueError: for another protocol, with those that the testbed has.
        """
        wanted = protocol.strip().lower()
        if wanted not in self.clusters:
            raise ValueError(one_of("protocol", protocol[:40], self.clusters))
        return self.clusters[wanted]
