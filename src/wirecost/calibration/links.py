"""Fits a link to measured collectives: benchmarks of a network, rows of benchmark tables, collectives of
traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from wirecost.calibration.fit import Description, Fit, HoldOut, fit
from wirecost.calibration.inputs.benchmarks import Bench, CollectiveRow, Measured
from wirecost.calibration.properties import PROPERTIES, Free, by_owner, fitted_to, free, link_with
from wirecost.calibration.solver import Array
from wirecost.costmodel.collectives import all_reduce_s, gather_s, link_costs, placed
from wirecost.costmodel.inputs import Machine
from wirecost.costmodel.machine import Formats, Node, build
from wirecost.costmodel.nccl import VETH_BPS
from wirecost.errors import SpecError
from wirecost.spec import GPU, Cluster, Link, MatrixPrecision, Provenance, gpu, load_spec, stack_named
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.units import BitsPerSecond

NOISE = 0.05
"""Standard deviation of log(measured) of a collective."""
KEYS = {
    "efficiency": "efficiency",
    "latency": "latency_s",
    "latency_per_step": "step_s",
    "half_rate_bytes": "half_bytes",
}
"""Fitted properties of a link, with the corresponding fields of `LinkCosts`."""
FEWEST = 3
"""Least number of rows of a table that must depend on a property, because a row is a single, unrepeated figure."""


@dataclass(frozen=True)
class Group:
    """Measurements of one kind of collective, as arrays."""

    op: str
    ranks: Array
    hosts: Array
    rings: Array
    size_bytes: Array
    places: npt.NDArray[np.int64]


class Collectives:
    """Collectives over one link (`kind`: intra or inter), as a problem for the solver."""

    def __init__(self, link: Link, kind: str, machine: Machine, samples: Sequence[Measured]) -> None:
        self.link, self.kind, self.machine = link, kind, machine
        self.seconds = np.array([s.seconds for s in samples], dtype=np.float64)
        self.owners = np.arange(len(samples))
        self._groups = [
            Group(
                op,
                np.array([float(samples[i].ranks) for i in places]),
                np.array([float(samples[i].hosts) for i in places]),
                np.array([float(samples[i].rings) for i in places]),
                np.array([float(samples[i].size_bytes) for i in places]),
                np.array(places),
            )
            for op in dict.fromkeys(s.op for s in samples)
            for places in [[i for i, s in enumerate(samples) if s.op == op]]
        ]

    @property
    def rows(self) -> int:
        """Returns the number of collectives."""
        return len(self.seconds)

    def predict(self, values: Mapping[str, float]) -> Array:
        """Returns the predicted seconds of each collective."""
        own = by_owner(values).get(("link", self.link.name), {})
        costs = link_costs(self.link, self.kind)
        costs = replace(costs, **{KEYS[key]: value for key, value in own.items()})
        inside = self.kind == "intra"
        machine = replace(self.machine, intra=costs) if inside else replace(self.machine, inter=costs)
        predicted = np.empty(self.rows)
        for group in self._groups:
            members = placed(group.ranks, group.ranks / group.hosts, group.rings, machine)
            if group.op == "all_reduce":
                predicted[group.places] = all_reduce_s(group.size_bytes, members, machine)
            else:
                predicted[group.places] = gather_s(group.size_bytes, members, machine, group.op)
        return predicted

    def errors(self, values: Mapping[str, float]) -> Array:
        """Returns log(predicted / measured) over its noise."""
        return np.log(self.predict(values) / self.seconds) / NOISE

    def row_errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted / measured - 1."""
        return self.predict(values) / self.seconds - 1


@dataclass(frozen=True)
class NetworkFit:
    """A fitted link of a network. `kind` is intra (inside one host) or inter."""

    network: str
    kind: str
    link: Link
    fit: Fit
    gpus_per_node: int
    hosts: int
    curves: NetworkEfficiency = field(default_factory=NetworkEfficiency)


def properties_of(link: Link, kind: str) -> list[Free]:
    """Returns a link's properties that may be fitted, starting from its values or the defaults."""
    costs = link_costs(link, kind)
    return [
        free(f"link {link.name} {key}", PROPERTIES["link", key], getattr(costs, field_))
        for key, field_ in KEYS.items()
    ]


def fit_link(
    problem: Collectives, inputs: Sequence[str], hold_out: HoldOut | None = None, *, fewest: int = 1
) -> tuple[Link, Fit]:
    """Returns the link with the properties that the collectives determine, and the fit. Needs scipy."""
    link = problem.link
    description = Description(f"link {link.name}", tuple(inputs), fewest=fewest)
    link_fit = fit(problem, properties_of(link, problem.kind), description, hold_out)
    own = by_owner(link_fit.values).get(("link", link.name), {})
    open_ = [p.name.rpartition(" ")[2] for p in link_fit.properties if not p.determined]
    text = f"fitted by wirecost calibrate to {problem.rows} measured collectives"
    text += f"; not determined by them: {', '.join(open_)}" if open_ else ""
    changed = link_with(link, own)
    return changed.model_copy(update=fitted_to("link", own, text)), link_fit


def fit_rows(rows: Sequence[CollectiveRow], inputs: Sequence[str], hold_out: HoldOut) -> list[Fit]:
    """Fits each link that rows of benchmark tables measured."""
    return [fit_link(problem, inputs, hold_out, fewest=FEWEST)[1] for problem, _ in problems_of(rows)]


def problems_of(rows: Sequence[CollectiveRow]) -> list[tuple[Collectives, list[CollectiveRow]]]:
    """Returns the rows of each link (and GPU architecture), as a problem for the solver."""
    groups: dict[tuple[str, str, str, int], list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault((row.link.name, row.kind, row.gpu.architecture, row.nics), []).append(row)
    problems = []
    for _, members in sorted(groups.items()):
        first = members[0]
        per_node = max(row.measured.ranks // row.measured.hosts for row in members)
        machine = bench_machine(first.link, first.kind, per_node, first.nics, first.gpu)
        samples = [row.measured for row in members]
        problems.append((Collectives(first.link, first.kind, machine, samples), members))
    return problems


def fit_benches(benches: Sequence[Bench], *, base: Cluster | None = None) -> NetworkFit:
    """Fits all benchmarks of one network together. `base` gives the link's name, nominal rate and NICs.

    Raises:
        SpecError: if no row is a collective to which a link can be fitted.
    """
    first = benches[0]
    samples = [sample for bench in benches for sample in bench.measured()]
    if not samples:
        raise SpecError(
            f"{first.path}: no all-reduce, all-gather or reduce-scatter outside the shaper's bucket to fit to"
        )
    kind = "inter" if first.hosts > 1 else "intra"
    per_host = max(bench.ranks_per_host for bench in benches)
    nics = 1
    if base is not None:
        link = base.inter_node if kind == "inter" else base.intra_node
        # If there are fewer ranks than GPUs in the node, the ranks use the NICs near their GPUs.
        nics = max(1, base.nics_per_node * min(per_host, base.gpus_per_node) // base.gpus_per_node)
    else:
        rate = first.rate_bps or _busiest_bps(samples)
        link = Link(
            name=first.network,
            rate=BitsPerSecond(rate),
            source=_rate_source(first),
            provenance=Provenance.DATASHEET,
        )
    if first.emulated and kind == "inter":
        link = link.model_copy(update={"interface_rate": BitsPerSecond(VETH_BPS)})
    machine = bench_machine(link, kind, per_host, nics)
    if not first.nccl:
        machine = replace(machine, two_node_tree=0.0)
    sources = [bench.source for bench in benches]
    fitted, link_fit = fit_link(Collectives(link, kind, machine, samples), sources)
    curves = NetworkEfficiency(network=first.network, emulated=first.emulated)
    for bench in benches:
        curves = curves.merged(bench.efficiency())
    hosts = max(bench.hosts for bench in benches)
    return NetworkFit(first.network, kind, fitted, link_fit, per_host, hosts, curves)


def fit_traced(samples: Sequence[Measured], kind: str, base: Cluster) -> NetworkFit:
    """Fits a cluster's link to the collectives of traces."""
    inside = kind == "intra"
    link = base.intra_node if inside else base.inter_node
    nics = 1 if inside else base.nics_per_node
    machine = bench_machine(link, kind, base.gpus_per_node, nics)
    if base.accelerator.architecture == "cpu":
        machine = replace(machine, two_node_tree=0.0)
    fitted, link_fit = fit_link(Collectives(link, kind, machine, samples), ["traces"])
    return NetworkFit(link.name, kind, fitted, link_fit, base.gpus_per_node, 1)


def bench_machine(link: Link, kind: str, gpus_per_node: int, nics: int = 1, device: GPU | None = None) -> Machine:
    """Returns a machine whose collectives take the time of NCCL's on that link; the other link is never the slower
    one.
    """
    fast = load_spec("link", "shared-memory", rate="1 Tb/s", efficiency=1.0)
    node = Node(gpus_per_node, link if kind == "intra" else fast, link if kind == "inter" else fast, nics)
    # Links depend on the GPU by its architecture only, and every GPU has FP16.
    device = device or gpu("A100-SXM-80GB")
    return build(device, stack_named("generic"), node, Formats(MatrixPrecision.FP16))


def _rate_source(bench: Bench) -> str:
    if bench.rate_bps is None:
        return "the rate is the highest bus bandwidth that the benchmark reached: nothing states a nominal one"
    return f"{'emulated, ' if bench.emulated else ''}nominal rate as the benchmark states it"


def _busiest_bps(samples: Sequence[Measured]) -> float:
    """Returns the highest rate at which any rank sent, in bits per second."""
    return max(_sent_bytes(s) / s.seconds for s in samples) * 8


def _sent_bytes(sample: Measured) -> float:
    return (2 if sample.op == "all_reduce" else 1) * (sample.ranks - 1) / sample.ranks * sample.size_bytes
