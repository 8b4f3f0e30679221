"""Benchmarks each of a study's networks once before training.

STORE/networks/SLUG/bench.json       what `wirecost bench --format json` prints, sizes chosen to be quick
STORE/networks/SLUG/failed.json      why there is no benchmark
STORE/networks/SLUG/manifest.json    whose these are, and their SHA-256
"""

from __future__ import annotations

import hashlib
import json
import os
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
from wirecost.spec import AnyExperiment, Device, JobExperiment
from wirecost.spec.network import Network
from wirecost.storage import write_file
from wirecost.study.environment import describe_environment
from wirecost.study.manifest import CheckedFiles, DamageError, read_regular, write_manifest
from wirecost.study.removal import remove
from wirecost.study.store import Store, StoreError

BENCHMARK = "bench.json"
COLLECTIVE = "all_reduce"
LARGEST_S = 0.04
"""Longest time of the largest message on a shaped link. With warm-up and check there are about ten such messages.
"""
LEAST_BYTES, MOST_BYTES, MOST_BYTES_ON_GPU = 16 << 10, 4 << 20, 64 << 20
SMALLEST_BYTES = 16
FRACTIONS = (1, 2, 4, 16, 64, 256, 1024, 4096)
"""Message sizes as divisors of the largest size. They are closer together where the bandwidth is determined."""
BUDGET_S = 0.08
TIMEOUT_S = 30.0
"""Timeout for one size, and for a rank to join."""


@dataclass(frozen=True)
class Site:
    """The site of experiments: a network with its number of hosts and ranks per host."""

    network: Network
    hosts: int
    ranks_per_host: int
    device: Device

    @staticmethod
    def of(experiment: AnyExperiment) -> Site:
        """Returns the site of an experiment. That of a command is benchmarked on the processors."""
        device = Device.CPU if isinstance(experiment, JobExperiment) else experiment.device
        return Site(experiment.network, experiment.hosts, experiment.ranks_per_host, device)

    @staticmethod
    def of_request(request: BenchRequest) -> Site:
        device = Device.CUDA if request.backend is Backend.NCCL else Device.CPU
        return Site(request.network, request.hosts, request.ranks_per_host, device)

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def label(self) -> str:
        return f"{self.network.name}, {self.hosts} x {self.ranks_per_host} ranks"

    @property
    def slug(self) -> str:
        """Returns a readable directory name that is unique to the site."""
        content = [self.network.model_dump(mode="json"), self.hosts, self.ranks_per_host, str(self.device)]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        name = re.sub(r"[^A-Za-z0-9._+-]", "-", self.network.name)
        return f"{name}_{self.hosts}x{self.ranks_per_host}_{self.device}_{digest}"

    def request(self) -> BenchRequest:
        """Returns the request of a short benchmark: all-reduce in place, as in training, over at
        least six sizes.
        """
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


def sites(experiments: Iterable[AnyExperiment]) -> list[Site]:
    """Returns each site once on which at least two ranks communicate."""
    return list({s.slug: s for s in map(Site.of, experiments) if s.ranks > 1}.values())


def benchmark(
    store: Store,
    wanted: Sequence[Site],
    measured: Callable[[Site, str | None], None],
    *,
    worker: Sequence[str] = (),
) -> None:
    """Benchmarks the sites that have no valid benchmark in the store. A failure is stored as the site's reason.

    Args:
        measured: called with each site that was tried and the reason if it failed.
        worker: another command for a rank, called with the benchmark's directory.

    Raises:
        StorageError, OSError: if a file can't be written; this isn't a failure of the network.
    """
    missing = [site for site in wanted if not _is_benchmarked(store, site)]

    def done(number: int, network: BenchNetwork, rows: list[Row]) -> None:
        site = missing[number]
        request = site.request()
        wrong = sum(row.wrong or 0 for row in rows)
        if wrong:
            failed(number, WirecostError(f"{wrong} elements are wrong"))
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
        folder = _emptied(store, site)
        write_file(folder / BENCHMARK, document.model_dump_json(indent=1))
        write_manifest(folder, site.slug)
        measured(site, None)

    def failed(number: int, error: WirecostError) -> None:
        folder = _emptied(store, missing[number])
        write_file(folder / "failed.json", json.dumps({"reason": str(error)}))
        measured(missing[number], str(error))

    run_each([site.request() for site in missing], done, failed, worker=worker)


def _is_benchmarked(store: Store, site: Site) -> bool:
    try:
        return read_benchmark(store, site) is not None
    except StoreError:
        return False


def read_benchmark(store: Store, site: Site) -> Document | None:
    """Returns the benchmark of a site; None if there is none.

    Raises:
        StoreError: names the file if it is damaged or belongs to another site.
    """
    folder = _folder(store, site)
    if not os.path.lexists(folder / BENCHMARK):
        return None
    try:
        document = CheckedFiles(folder, site.slug).parse(BENCHMARK, Document)
    except DamageError as error:
        raise StoreError(f"{folder}: {error}; a run with --resume measures it again") from error
    if document.request is None or Site.of_request(document.request) != site:
        raise StoreError(f"{folder}: {BENCHMARK} is of another network; a run with --resume measures it again")
    return document


def why_not(store: Store, site: Site) -> str | None:
    """Returns the reason why a site has no benchmark; None if it has one, or none was tried."""
    path = _folder(store, site) / "failed.json"
    if not os.path.lexists(path):
        return None
    try:
        failure = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        failure = None
    return str(failure["reason"]) if isinstance(failure, dict) and "reason" in failure else f"{path} is damaged"


def _folder(store: Store, site: Site) -> Path:
    return store.root / "networks" / site.slug


def _emptied(store: Store, site: Site) -> Path:
    folder = _folder(store, site)
    remove(folder)
    folder.mkdir(parents=True)
    return folder
