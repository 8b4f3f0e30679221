"""Measured collectives: `wirecost bench` documents, rows of benchmark tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wirecost.calibration.inputs.columns import CannotExpressError, number
from wirecost.calibration.inputs.row_machine import INTER_LINKS, INTRA_LINKS, find_gpu, link_named, usual_link
from wirecost.calibration.inputs.table import Setting, identity
from wirecost.collectives.efficiency import efficiency, fit_rows
from wirecost.collectives.readers.base import MAX_RANKS, check_rows
from wirecost.collectives.result import Row
from wirecost.errors import SpecError, WirecostError, shorten
from wirecost.reading import read_bytes
from wirecost.spec import GPU, Cluster, Link
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.units import parse_rate_bps

FITTED_OPS = ("all_reduce", "all_gather", "reduce_scatter")
SMALLEST_BYTES = 64e3
"""Rows of tables below this measure launches rather than the link."""
MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Measured:
    """One collective of a group of `ranks` on `hosts`, where `rings` such groups ran at once."""

    op: str
    ranks: int
    hosts: int
    rings: int
    size_bytes: float
    seconds: float


@dataclass(frozen=True)
class CollectiveRow:
    """A row of a benchmark table: the collective, the link that it measures (`kind`: intra or inter), the GPU,
    and how many NICs a node has."""

    id: str
    source: str
    kind: str
    link: Link
    gpu: GPU
    measured: Measured
    nics: int = 1


@dataclass(frozen=True)
class Bench:
    """A `wirecost bench` result as its JSON document has it. Rates are one host's, in bits per second."""

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
        """Its file and folder, which a calibration names. It is read on other machines too, to which the whole
        path means nothing."""
        return "/".join(Path(self.path).parts[-2:])

    @property
    def nccl(self) -> bool:
        """Whether it ran NCCL: its times are means over a stream of collectives, those of others are medians."""
        return not self.medians

    def measured(self) -> list[Measured]:
        """Returns the collectives that a link can be fitted to."""
        collectives = []
        for row in self.rows:
            of_use = row.collective in FITTED_OPS and row.ranks > 1 and row.size_bytes
            if not of_use or row.unshaped or row.wrong:
                continue
            time = row.p50_ns if self.medians and row.p50_ns else row.time_ns
            hosts = min(self.hosts, row.ranks)
            collectives.append(Measured(row.collective, row.ranks, hosts, self.rings, row.size_bytes, time * 1e-9))
        return collectives

    def efficiency(self) -> NetworkEfficiency:
        """Returns the time of each collective over its size, for groups of this very shape."""
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


def collective_row(row: Mapping[str, str | None], index: int, setting: Setting) -> CollectiveRow:
    """Returns one row of a benchmark table. A row that doesn't name its GPU or its link is of the user's cluster.

    Raises:
        CannotExpressError: with the reason, where the row can't be expressed.
    """
    text = (row.get("collective") or "all_reduce").lower().replace("allreduce", "all_reduce")
    op = next((op for op in FITTED_OPS if op in text), None)
    size, time = number(row, "size_bytes"), number(row, "time_us")
    gpus, nodes = number(row, "gpus") or number(row, "n_gpus"), number(row, "nodes") or 1.0
    if op is None or not size or not time or not gpus or gpus < 2 or size < SMALLEST_BYTES:
        raise CannotExpressError(
            "no all-reduce, all-gather or reduce-scatter of 64 kB or more with its size, time and GPUs"
        )
    if gpus % nodes:
        raise CannotExpressError(f"{gpus:g} GPUs do not divide over {nodes:g} nodes")
    kind = "inter" if nodes > 1 else "intra"
    device = _gpu(row, setting.cluster)
    link = _link(row, kind, device, setting.cluster)
    of_cluster = setting.cluster is not None and link is setting.cluster.inter_node
    return CollectiveRow(
        id=identity(row, index),
        source=(row.get("source") or "unknown").strip(),
        kind=kind,
        link=link,
        gpu=device,
        measured=Measured(op, round(gpus), round(nodes), 1, size, time * 1e-6),
        nics=setting.cluster.nics_per_node if setting.cluster is not None and of_cluster else 1,
    )


def _gpu(row: Mapping[str, str | None], cluster: Cluster | None) -> GPU:
    name = (row.get("gpu") or "").strip()
    if name:
        return find_gpu(name)
    if cluster is None:
        raise CannotExpressError("gpu is empty; name it, or give --cluster")
    return cluster.accelerator


def _link(row: Mapping[str, str | None], kind: str, device: GPU, cluster: Cluster | None) -> Link:
    text = (row.get("interconnect") or "").strip().lower()
    known = INTER_LINKS if kind == "inter" else INTRA_LINKS
    name = next((preset for word, preset in known if word in text), None)
    if name is None and kind == "intra" and ("nvlink" in text or "nvswitch" in text):
        name = usual_link(device, "intra")
    if name is not None:
        return link_named(name)
    if cluster is None:
        words = ", ".join(word for word, _ in known)
        raise CannotExpressError(
            f"the interconnect {text[:40]!r} names no known link ({words}); name it, or give --cluster"
        )
    return cluster.inter_node if kind == "inter" else cluster.intra_node


def read_bench(path: Path) -> Bench | None:
    """Returns a `wirecost bench --format json` document; None where the file is something else.

    Raises:
        SpecError: for a damaged one, or one that contradicts itself.
    """
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        data = json.loads(read_bytes(path, most_bytes=MAX_BYTES, pipes=False, error=SpecError))
    except (WirecostError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "rows" not in data or "fits" not in data:
        return None
    try:
        rows = tuple(Row.model_validate_json(json.dumps(row)) for row in data["rows"])
        check_rows(rows, str(path))
        rows = _as_trained(rows, data.get("request") or {})
        request, network = data.get("request"), data.get("network") or {}
        if request is None:
            # Read from another tool's output: on how many hosts it ran is all that may be known.
            hosts = {source.get("hosts") for source in data["read"]}
            most = max((row.ranks for row in rows), default=1)
            host = _count("read.hosts", hosts.pop() or 1) if len(hosts) == 1 else 1
            return Bench(str(path), "benchmarked", None, host, max(1, most // host), 1, None, False, rows)
        shape = request["network"].get("emulate") or {}
        nominal = network.get("nominal_rate_bps")
        rate = _rate_bps(nominal) if nominal else parse_rate_bps(shape["rate"]) if shape.get("rate") else None
        emulated = network.get("emulated")
        if emulated is not None and not isinstance(emulated, bool):
            raise ValueError(f"network.emulated: true or false, not {shorten(emulated)}")
        return Bench(
            path=str(path),
            network=_name(network.get("name") or request["network"]["name"]),
            emulated=emulated,
            hosts=_count("request.hosts", request["hosts"]),
            ranks_per_host=_count("request.ranks_per_host", request["ranks_per_host"]),
            rings=_count("request.groups", len(request["groups"])),
            rate_bps=rate,
            medians=request["backend"] != "nccl",
            rows=rows,
        )
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{path}: no sound benchmark: {' '.join(str(error).split())[:160]}") from error


def _count(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_RANKS:
        return value
    raise ValueError(f"{key}: a whole number from 1 to {MAX_RANKS}, not {shorten(value)}")


def _rate_bps(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1e18:
        return float(value)
    raise ValueError(f"network.nominal_rate_bps: a rate from 1 to 1e18 bits per second, not {shorten(value)}")


def _name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}", value):
        return value
    raise ValueError(f"network.name: letters, digits and . _ + -, not {shorten(value)}")


def _as_trained(rows: tuple[Row, ...], request: dict[str, Any]) -> tuple[Row, ...]:
    """Gloo's own reduce-scatter is an all-reduce of which a part is kept, twice the bytes. The engine exchanges
    the parts and sums them instead (`wirecost.train.communicator`): the all-to-all's rows stand for that."""
    if request.get("backend") != "gloo":
        return rows
    kept = [row for row in rows if row.collective != "reduce_scatter"]
    exchanged = [
        row.model_copy(update={"collective": "reduce_scatter"}) for row in rows if row.collective == "all_to_all"
    ]
    return (*kept, *exchanged)
