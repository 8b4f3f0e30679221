"""A study's networks, each benchmarked once before anything is trained over it.

STORE/networks/SLUG/bench.json       what `wirecost bench --format json` prints, sizes chosen to be quick
STORE/networks/SLUG/failed.json      why there is no benchmark
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wirecost.collectives.bench import run_each
from wirecost.collectives.document import Document, fit_entries
from wirecost.collectives.efficiency import fit_rows
from wirecost.collectives.operations import COLLECTIVES
from wirecost.collectives.request import Backend, BenchRequest, Mode
from wirecost.collectives.result import BenchNetwork, Row
from wirecost.errors import WirecostError
from wirecost.reading import read_result
from wirecost.spec import Device, Experiment
from wirecost.spec.network import Network
from wirecost.study.environment import describe_environment
from wirecost.study.store import Store, StoreError, read_json, write_file

COLLECTIVE = "all_reduce"
LARGEST_S = 0.04
"""How long the largest message may take on a shaped link: with its warm-up and check there are about ten."""
LEAST_BYTES, MOST_BYTES, MOST_BYTES_ON_GPU = 16 << 10, 4 << 20, 64 << 20
SMALLEST_BYTES = 16
FRACTIONS = (1, 2, 4, 16, 64, 256, 1024, 4096)
"""Of the largest size; closer together where the bandwidth is read off."""
BUDGET_S = 0.08
TIMEOUT_S = 30.0
"""For one size, or for a rank to come."""


@dataclass(frozen=True)
class Site:
    """Where experiments run: a network between so many hosts with so many ranks each."""

    network: Network
    hosts: int
    ranks_per_host: int
    device: Device

    @staticmethod
    def of(experiment: Experiment) -> Site:
        return Site(experiment.network, experiment.hosts, experiment.ranks_per_host, experiment.device)

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def label(self) -> str:
        return f"{self.network.name}, {self.hosts} x {self.ranks_per_host} ranks"

    @property
    def slug(self) -> str:
        """A directory name that a person can read and no two different sites share."""
        content = [self.network.model_dump(mode="json"), self.hosts, self.ranks_per_host, str(self.device)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        name = re.sub(r"[^A-Za-z0-9._+-]", "-", self.network.name)
        return f"{name}_{self.hosts}x{self.ranks_per_host}_{self.device}_{digest}"

    def request(self) -> BenchRequest:
        """A short benchmark: all-reduce in place, as training does it, over at least six sizes."""
        return BenchRequest(
            collectives=(COLLECTIVE,),
            sizes_bytes=self._sizes(),
            backend=Backend.NCCL if self.device is Device.CUDA else Backend.GLOO,
            network=self.network,
            hosts=self.hosts,
            ranks_per_host=self.ranks_per_host,
            groups=(tuple(range(self.ranks)),),
            modes=(Mode.IN_PLACE,),
            warmup=3,
            budget_s=BUDGET_S,
            timeout_s=TIMEOUT_S,
        )

    def _sizes(self) -> tuple[int, ...]:
        most = MOST_BYTES_ON_GPU if self.device is Device.CUDA else MOST_BYTES
        rate = self.network.emulate.rate if self.network.emulate and self.hosts > 1 else None
        if rate is not None:
            fitting = int(rate / 8 * LARGEST_S / COLLECTIVES[COLLECTIVE].bus_factor(self.ranks))
            most = min(most, max(LEAST_BYTES, 1 << fitting.bit_length() - 1))
        return tuple(most // part for part in reversed(FRACTIONS) if most // part >= SMALLEST_BYTES)


def sites(experiments: Iterable[Experiment]) -> list[Site]:
    """Each place once where two ranks or more communicate."""
    return list({s.slug: s for s in map(Site.of, experiments) if s.ranks > 1}.values())


def benchmark(
    store: Store,
    wanted: Sequence[Site],
    measured: Callable[[Site, str | None], None],
    *,
    worker: Sequence[str] = (),
) -> None:
    """Benchmarks those that the store has none of yet; whatever goes wrong with one is kept as its reason.

    Args:
        measured: told of each that was tried, and why it failed.
        worker: another command for a rank, called with the benchmark's directory.
    """
    missing = [site for site in wanted if not (_folder(store, site) / "bench.json").exists()]

    def done(number: int, network: BenchNetwork, rows: list[Row]) -> None:
        site = missing[number]
        request = site.request()
        wrong = sum(row.wrong or 0 for row in rows)
        if wrong:
            failed(number, WirecostError(f"{wrong} elements came out wrong"))
            return
        document = Document(
            environment=describe_environment(),
            request=request,
            network=network,
            rows=tuple(rows),
            fits=fit_entries(
                fit_rows(rows, medians=request.backend is not Backend.NCCL, link_bps=request.link_bps)
            ),
        )
        folder = _folder(store, site)
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "bench.json", document.model_dump_json(indent=1))
        (folder / "failed.json").unlink(missing_ok=True)
        measured(site, None)

    def failed(number: int, error: WirecostError) -> None:
        folder = _folder(store, missing[number])
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "failed.json", json.dumps({"reason": str(error)}))
        measured(missing[number], str(error))

    run_each([site.request() for site in missing], done, failed, worker=worker)


def read_benchmark(store: Store, site: Site) -> Document | None:
    """What was measured of a site; None if nothing was.

    Raises:
        StoreError: naming the file, if it can't be read.
    """
    path = _folder(store, site) / "bench.json"
    return read_json(Document, path) if path.exists() else None


def why_not(store: Store, site: Site) -> str | None:
    """Why a site has no benchmark; None if it has one, or none was tried."""
    path = _folder(store, site) / "failed.json"
    try:
        text = read_result(path, StoreError) if path.exists() else b"null"
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: can't be read: {error}") from error
    return str(found.get("reason")) if isinstance(found, dict) else None


def _folder(store: Store, site: Site) -> Path:
    return store.root / "networks" / site.slug
