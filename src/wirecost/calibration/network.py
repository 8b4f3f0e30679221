"""Fits a network to benchmarks of its collectives (or to collectives seen in traces)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from wirecost.calibration.identify import Property, Told, identify
from wirecost.collectives.efficiency import efficiency, fit_rows
from wirecost.collectives.result import Row
from wirecost.errors import SpecError
from wirecost.model.collectives import all_reduce_s, gather_s, link_numbers, placed
from wirecost.model.inputs import Machine
from wirecost.model.machine import build, stack_named
from wirecost.model.nccl import VETH_BPS
from wirecost.spec import Cluster, Link, MatrixPrecision, gpu
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.spec.presets import named
from wirecost.units import BitsPerSecond, Seconds

LINK_DOUBTS = {"efficiency": 0.7, "latency": 1.5, "latency_per_step": 1.5, "half_rate_bytes": 2.0}
FIELDS = {
    "efficiency": "efficiency",
    "latency": "latency_s",
    "latency_per_step": "step_s",
    "half_rate_bytes": "half_bytes",
}
LIMITS = {
    "efficiency": (0.01, 1.0),
    "latency": (1e-7, 0.1),
    "latency_per_step": (1e-8, 0.1),
    "half_rate_bytes": (1.0, 1e10),
}
NOISE = 0.05
FITTED_OPS = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Measured:
    """One collective of a group of `ranks` on `hosts`, `rings` such groups at once."""

    op: str
    ranks: int
    hosts: int
    rings: int
    size_bytes: float
    seconds: float


@dataclass(frozen=True)
class Bench:
    """A `wirecost bench` result as its JSON holds it. Rates are one host's, in bits per second."""

    path: str
    network: str
    emulated: bool | None
    hosts: int
    ranks_per_host: int
    rings: int
    rate_bps: float | None
    medians: bool
    rows: tuple[Row, ...]

    @property
    def source(self) -> str:
        """What a calibration says of it: its file and folder. It is read on other machines too, to which the whole
        path means nothing."""
        return "/".join(Path(self.path).parts[-2:])

    @property
    def nccl(self) -> bool:
        """Its times are means over a stream of collectives; those of others are medians."""
        return not self.medians

    def measured(self) -> list[Measured]:
        found = []
        for row in self.rows:
            if (
                row.collective not in FITTED_OPS
                or row.unshaped
                or row.wrong
                or not row.size_bytes
                or row.ranks < 2
            ):
                continue
            time = row.p50_ns if self.medians and row.p50_ns else row.time_ns
            hosts = min(self.hosts, row.ranks)
            found.append(Measured(row.collective, row.ranks, hosts, self.rings, row.size_bytes, time * 1e-9))
        return found

    def efficiency(self) -> NetworkEfficiency:
        alone = self.emulated and self.hosts > 1 and self.ranks_per_host == 1
        link_bps = self.rate_bps if alone else None
        fitted = fit_rows(self.rows, groups=self.rings, medians=self.medians, link_bps=link_bps)
        return efficiency(
            fitted,
            source=f"wirecost bench ({self.source})",
            hosts=self.hosts,
            network=self.network,
            emulated=self.emulated,
        )


@dataclass
class NetworkFit:
    """`kind` is intra (one host) or inter. `errors` are predicted / measured - 1 of each point."""

    network: str
    kind: str
    link: Link
    curves: NetworkEfficiency
    told: list[Told]
    errors: list[float]
    points: int
    gpus_per_node: int
    hosts: int
    sources: list[str] = field(default_factory=list)

    @property
    def mape(self) -> float:
        return float(np.mean(np.abs(self.errors)))


def fit_benches(benches: Sequence[Bench], *, base: Cluster | None = None) -> NetworkFit:
    """Fits all benchmarks of one network together. `base` gives the link's name, nominal rate and NICs.

    Raises:
        SpecError: where no row is a collective that a link can be fitted to.
    """
    first = benches[0]
    samples = [sample for bench in benches for sample in bench.measured()]
    if not samples:
        raise SpecError(
            f"{first.path}: no all-reduce, all-gather or reduce-scatter outside the shaper's bucket to fit to"
        )
    kind = "inter" if first.hosts > 1 else "intra"
    rate = first.rate_bps or _busiest_bps(samples)
    per_host = max(bench.ranks_per_host for bench in benches)
    nics = 1
    if base is not None:
        link = base.inter_node if kind == "inter" else base.intra_node
        # Fewer ranks than the node has GPUs reach the NICs that lie beside theirs.
        nics = max(1, base.nics_per_node * min(per_host, base.gpus_per_node) // base.gpus_per_node)
    else:
        link = Link(name=first.network, rate=BitsPerSecond(rate), source=_rate_source(first))
    if first.emulated and kind == "inter":
        link = link.model_copy(update={"interface_rate": BitsPerSecond(VETH_BPS)})
    fitted, told, errors = fit_link(link, samples, kind, per_host, nics_per_node=nics, nccl=first.nccl)
    curves = NetworkEfficiency(network=first.network, emulated=first.emulated)
    for bench in benches:
        curves = curves.merged(bench.efficiency())
    return NetworkFit(
        first.network,
        kind,
        fitted,
        curves,
        told,
        errors,
        len(samples),
        per_host,
        max(bench.hosts for bench in benches),
        [bench.source for bench in benches],
    )


def _rate_source(bench: Bench) -> str:
    if bench.rate_bps is None:
        return "the rate is the highest bus bandwidth that the benchmark reached: nothing states a nominal one"
    return f"{'emulated, ' if bench.emulated else ''}nominal rate as the benchmark states it"


def _busiest_bps(samples: Sequence[Measured]) -> float:
    """The highest rate at which any rank sent."""
    return max(_factor(s) * s.size_bytes / s.seconds for s in samples) * 8


def _factor(sample: Measured) -> float:
    return (2 if sample.op == "all_reduce" else 1) * (sample.ranks - 1) / sample.ranks


def fit_link(
    link: Link,
    samples: Sequence[Measured],
    kind: str,
    gpus_per_node: int,
    *,
    nics_per_node: int = 1,
    nccl: bool = True,
) -> tuple[Link, list[Told], list[float]]:
    """The link with what the samples tell, what that is, and each sample's error. Needs scipy. `nccl`: whether the
    samples are of its collectives."""
    start = link_numbers(link, kind)
    machine = _machine(link, kind, gpus_per_node, nics_per_node)
    if not nccl:
        machine = replace(machine, two_node_tree=0.0)
    properties = [
        Property(f"link {name}", max(start[f"{kind}_{FIELDS[name]}"], 1e-9), doubt, *LIMITS[name])
        for name, doubt in LINK_DOUBTS.items()
    ]

    def errors(values: Mapping[str, float]) -> np.ndarray:
        changed = replace(machine, **{f"{kind}_{FIELDS[name.split()[1]]}": v for name, v in values.items()})
        return np.array([np.log(_seconds(s, changed) / s.seconds) for s in samples])

    told = identify(properties, lambda values: errors(values) / NOISE)
    values = {one.name: one.value for one in told}
    update: dict[str, object] = {
        name.split()[1]: Seconds(v) if name.split()[1].startswith("latency") else v for name, v in values.items()
    }
    open_ = [one.name.split()[1] for one in told if not one.told]
    said = f"fitted by wirecost calibrate to {len(samples)} measured collectives"
    said += f"; not told by them: {', '.join(open_)}" if open_ else ""
    fitted = link.model_copy(update={**update, "calibration": said})
    return fitted, told, np.expm1(errors(values)).tolist()


def _machine(link: Link, kind: str, gpus_per_node: int, nics_per_node: int) -> Machine:
    fast = Link.model_validate({**named("link", "shared-memory"), "rate": "1 Tb/s", "efficiency": 1.0})
    return build(
        gpu("A100-SXM-80GB"),  # links don't care
        stack_named("generic"),
        intra=link if kind == "intra" else fast,
        inter=link if kind == "inter" else fast,
        gpus_per_node=gpus_per_node,
        nics_per_node=nics_per_node,
        precision=MatrixPrecision.FP16,
    )


def _seconds(sample: Measured, machine: Machine) -> float:
    members = placed(float(sample.ranks), sample.ranks / sample.hosts, float(sample.rings), machine)
    if sample.op == "all_reduce":
        return float(all_reduce_s(sample.size_bytes, members, machine))
    return float(gather_s(sample.size_bytes, members, machine, sample.op))
