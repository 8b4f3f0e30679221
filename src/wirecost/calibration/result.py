"""The result of every calibration: the fits with their inputs, and the resulting stacks and clusters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wirecost.calibration.fit import Fit
from wirecost.calibration.properties import Parts, Values, by_owner, fitted_to
from wirecost.costmodel.setup import Setup
from wirecost.diagnostics import Diagnostic, legacy_warnings
from wirecost.errors import SpecError, one_of
from wirecost.spec import Cluster, Precision, Stack

if TYPE_CHECKING:
    from wirecost.train.hosttimes import MeasuredHost

FORMAT_VERSION = 2


@dataclass
class Calibration:
    """A calibration. `values` are those of presets' properties, with `spread` for the stacks among them. Stacks by
    precision and clusters by their network's name come from runs and benchmarks. `hosts` are the host's times that
    were measured for the stacks.
    """

    fits: list[Fit] = field(default_factory=list)
    values: Values = field(default_factory=dict)
    spread: float | None = None
    stacks: dict[Precision, Stack] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    of_stacks: dict[Precision, Fit] = field(default_factory=dict)
    hosts: dict[Precision, MeasuredHost] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    name: str = "wirecost calibrate"

    @property
    def empty(self) -> bool:
        """Returns whether nothing was determined that could be saved."""
        return not self.stacks and not self.clusters and not self.values

    def worse_than_presets(self) -> list[str]:
        """Returns a line for each fit that is no closer than the presets to rows left out."""
        return [
            f"{each.name}: on rows left out the fit errs by {_shown(each.errors.held_out, each.unit)}, "
            f"the presets by {_shown(each.errors.held_out_presets, each.unit)}"
            for each in self.fits
            if each.beats_presets is False
        ]

    def as_json(self) -> dict[str, Any]:
        """Returns plain data for a JSON document."""
        measured = {"hosts": {str(p): host.as_json() for p, host in self.hosts.items()}} if self.hosts else {}
        return {
            "format_version": FORMAT_VERSION,
            "fits": [each.as_json() for each in self.fits],
            "values": self.values,
            "spread": self.spread,
            "stacks": sorted(self.stacks),
            "clusters": sorted(self.clusters),
            "diagnostics": [d.as_json() for d in self.diagnostics],
            "notes": [warning["message"] for warning in legacy_warnings(self.diagnostics)],
        } | measured

    def chosen(
        self, cluster: str | None, precision: Precision, stack: Stack | None, where: str
    ) -> tuple[Cluster, Stack]:
        """Returns one cluster and one stack; `cluster` names the cluster if there are several.

        Raises:
            SpecError: for a cluster or precision that was not calibrated.
        """
        if cluster is None and len(self.clusters) > 1:
            names = ", ".join(sorted(self.clusters))
            raise SpecError(f"{where}: holds several networks; say --cluster: {names}")
        name = cluster or next(iter(self.clusters))
        if name not in self.clusters:
            raise SpecError(one_of("cluster", name, self.clusters))
        if stack is None and precision not in self.stacks:
            raise SpecError(
                f"{where}: precision {precision} was not calibrated; give --precision "
                f"{' or '.join(sorted(self.stacks))}, or --stack"
            )
        return self.clusters[name], stack or self.stacks[precision]

    def fitted_stack(self, where: str) -> str | None:
        """Returns the name of the stack whose properties were fitted. None if no stack's were.

        Raises:
            SpecError: if several stacks were fitted, so that one has to be named.
        """
        names = sorted(name for kind, name in by_owner(self.values) if kind == "stack")
        if len(names) > 1:
            raise SpecError(f"{where}: fits several stacks; say --stack: {', '.join(names)}")
        return names[0] if names else None

    def applied(self, setup: Setup, where: str | None = None) -> Setup:
        """Returns the setup with the fitted values of its GPU, links and stack.

        Args:
            where: name of the calibration for an error if none of its values belongs to a part of the setup. None
                returns the setup unchanged in that case.

        Raises:
            SpecError: if none of the fitted values belongs to a part of the setup.
        """
        if not self.values:
            return setup
        cluster, stack = self.with_values(setup.cluster, setup.stack)
        if where is not None and stack is setup.stack and cluster == setup.cluster:
            fitted = ", ".join(sorted(f"{kind} {name}" for kind, name in by_owner(self.values)))
            raise SpecError(
                f"{where}: fits {fitted}, and nothing of this job: GPU {setup.cluster.accelerator.name}, "
                f"stack {setup.stack.name}; name a cluster or --stack that it fits, or leave out --calibration"
            )
        return replace(setup, cluster=cluster, stack=stack)

    def with_values(self, cluster: Cluster, stack: Stack) -> tuple[Cluster, Stack]:
        """Returns a cluster and a stack with the fitted values."""
        before = Parts(cluster.accelerator, stack, cluster.intra_node, cluster.inter_node)
        after = before.with_values(self.values)
        owned = by_owner(self.values)

        def fitted(kind: str, name: str) -> dict[str, Any]:
            return fitted_to(kind, owned.get((kind, name), ()), self.name)

        if after.stack is not stack:
            more = {} if self.spread is None else {"spread": self.spread}
            stack = after.stack.with_values(fitted("stack", stack.name) | more)
        update: dict[str, Any] = {}
        if after.gpu is not before.gpu:
            update["gpu"] = after.gpu.model_copy(update=fitted("gpu", after.gpu.name))
        if after.intra is not before.intra:
            update["intra_node"] = after.intra.model_copy(update=fitted("link", after.intra.name))
        if after.inter is not before.inter:
            update["inter_node"] = after.inter.model_copy(update=fitted("link", after.inter.name))
        return cluster.model_copy(update=update), stack


def _shown(error: float | None, unit: str) -> str:
    if error is None:
        return "an unknown amount"
    return f"{error:.1%}" if unit == "s" else f"{error:.3f}"
