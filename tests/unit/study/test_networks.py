"""What is benchmarked before a study, and what becomes of it; nothing is started here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.results import STUDY, invented_store
from wirecost.collectives.bench import BenchError
from wirecost.collectives.readers import read_results
from wirecost.collectives.request import Backend, Mode
from wirecost.collectives.result import BenchNetwork, Row
from wirecost.report import read_report
from wirecost.report.data import to_json
from wirecost.report.page import render_page
from wirecost.report.terminal import print_report
from wirecost.spec import Device, Emulation, Network, Study, parse_yaml, validate
from wirecost.study import networks
from wirecost.study.networks import Site, benchmark, read_benchmark, sites, why_not

EXPERIMENTS = validate(Study, parse_yaml(STUDY, "s"), "s").experiments()


def row(size: int, ranks: int, *, wrong: int = 0) -> Row:
    time_ns = 1e6 + size * 10
    return Row(
        collective="all_reduce", size_bytes=size, count=size // 4, dtype="float", redop="sum", root=None,
        mode=Mode.IN_PLACE, ranks=ranks, time_ns=time_ns, algbw_Bps=size / time_ns * 1e9,
        busbw_Bps=size / time_ns * 1e9, wrong=wrong, p50_ns=time_ns,
    )  # fmt: skip


def test_each_place_once_and_only_where_ranks_communicate() -> None:
    found = sites(EXPERIMENTS)
    assert {(s.network.name, s.hosts) for s in found} == {
        (f, h) for f in ("emulated-100m", "emulated-1g") for h in (2, 4)
    }
    assert len({s.slug for s in found}) == len(found) == 4
    alone = EXPERIMENTS[0].model_copy(update={"hosts": 1, "global_batch": 4})
    assert sites([alone]) == []


@pytest.mark.parametrize("rate", [64e3, 1e6, 60e6, 1e9, 20e9, None])
@pytest.mark.parametrize("ranks", [2, 3, 4, 64])
def test_sizes_make_a_fit_and_a_short_run(rate: float | None, ranks: int) -> None:
    network = Network(name="x", emulate=Emulation(rate=f"{rate:.0f} b/s" if rate else None))  # type: ignore[arg-type]
    request = Site(network, ranks, 1, Device.CPU).request()
    request.check_sizes()
    assert len(request.sizes_bytes) >= 6
    assert request.sizes_bytes == tuple(sorted(set(request.sizes_bytes)))
    assert request.largest_bytes <= 4 << 20
    if rate and request.largest_bytes > networks.LEAST_BYTES:
        assert request.largest_bytes * 8 / rate <= networks.LARGEST_S
    assert Site(network, ranks, 1, Device.CUDA).request().backend is Backend.NCCL


def test_kept_reused_shown_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = invented_store(tmp_path)
    wanted, asked, told = sites(EXPERIMENTS), [], []

    def stand_in(requests: Any, on_done: Any, on_failed: Any, **_: Any) -> None:
        asked.append(len(requests))
        for number, request in enumerate(requests):
            if len(asked) == 1 and number == 0:
                on_failed(number, BenchError("rank 1 was <killed>"))
            else:
                network = BenchNetwork(name=request.network.name, emulated=True)
                on_done(number, network, [row(s, request.ranks) for s in request.sizes_bytes])

    monkeypatch.setattr(networks, "run_each", stand_in)
    benchmark(store, wanted, lambda site, why: told.append((site, why)))
    assert [why for _, why in told] == ["rank 1 was <killed>", None, None, None]
    assert why_not(store, wanted[0]) == "rank 1 was <killed>"
    assert read_benchmark(store, wanted[0]) is None
    document = read_benchmark(store, wanted[1])
    assert document
    assert document.fits[0].bus_bandwidth_Bps

    report = read_report(tmp_path)
    assert len(report.benchmarks) == 4
    shown = json.loads(to_json(report))["networks"]
    assert sum(n["latency_ns"] is None for n in shown) == 1
    assert "rank 1 was &lt;killed&gt;" in render_page(report)
    print_report(report)

    path = next(iter(tmp_path.glob("networks/*/bench.json")))
    reading = read_results(path)
    assert reading.hosts in (2, 4)
    assert len(reading.rows) == len(document.rows)

    # Only what is missing is measured again, and its failure is forgotten.
    benchmark(store, wanted, lambda site, why: None)
    assert asked == [4, 1]
    assert why_not(store, wanted[0]) is None

    path.write_text('{"format_version": 1, "request": {}}')
    named = [b.reason for b in read_report(tmp_path).benchmarks if b.reason]
    assert len(named) == 1
    assert "bench.json has 36 bytes" in str(named[0])
    benchmark(store, wanted, lambda site, why: None)
    assert asked == [4, 1, 1]
    assert not [b for b in read_report(tmp_path).benchmarks if b.reason]


def test_wrong_sums_are_no_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, (site, *_) = invented_store(tmp_path), sites(EXPERIMENTS)
    monkeypatch.setattr(
        networks, "run_each", lambda requests, done, failed, **_: done(0, BenchNetwork(name="x", emulated=True), [row(64, 2, wrong=3)])
    )  # fmt: skip
    benchmark(store, [site], lambda site, why: None)
    assert why_not(store, site) == "3 elements are wrong"
    assert read_benchmark(store, site) is None
