"""`wirecost bench` over real gloo on real, shaped links. Counts, bytes and caps decide; time never does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.benches import bench, request
from wirecost.collectives.bench import run_bench
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.readers import parse_results

pytest.importorskip("torch")


def test_every_collective_is_right_on_four_ranks() -> None:
    """Also with an integer type, and a number of elements that is no round one."""
    names = [*COLLECTIVES, BARRIER]
    for dtype, size in (("bfloat16", "1000"), ("int32", "65552")):
        _, rows = run_bench(request(collectives=names, ranks_per_host=4, dtype=dtype, smallest=size))
        assert {r.collective for r in rows} == set(names)
        assert all(r.wrong == 0 for r in rows if r.collective != BARRIER)
        assert all(r.time_ns > 0 and r.ranks == 4 for r in rows)
    assert len(names) > 5


@pytest.mark.needs_root
def test_the_bus_bandwidth_never_exceeds_the_cap() -> None:
    names = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv_bidirectional"]
    wanted = request(collectives=names, hosts=2, network="emulated-300m", smallest="1M", iterations=2, place="in")
    network, rows = run_bench(wanted)
    assert network.emulated
    assert len(rows) == len(names)
    bucket = network.unshaped_bytes or 0
    for row in rows:
        assert row.wrong == 0
        # Each end of the link has a bucket, which a stream of ten messages can empty once.
        messages = row.messages or 0
        allowed = 300e6 / 8 * (1 + 2 * bucket / (row.size_bytes * messages / 2))
        assert 0 < (row.busbw_Bps or 0) < allowed, row.collective


@pytest.mark.needs_root
def test_rings_at_once_share_a_hosts_link() -> None:
    wanted = request(hosts=2, ranks_per_host=2, groups="2", network="emulated-300m", smallest="2M", place="in")
    _, (row,) = run_bench(wanted)
    assert len(row.groups_ns) == 2
    assert row.wrong == 0
    # Two rings of which each moves the size through one host's link: together not above the cap.
    assert 2 * (row.busbw_Bps or 0) < 300e6 / 8 * 1.2


def test_table_json_and_reading_back_agree(tmp_path: Path) -> None:
    run = bench("all_reduce", "all_gather", "--backend", "gloo", "-b", "64", "-e", "4096", "-f", "8", "-n", "2")
    assert run.returncode == 0, run.stderr
    rows = parse_results(run.stdout, "x").rows
    assert {(r.collective, r.size_bytes, r.ranks) for r in rows} == {
        (c, s, 2) for c in ("all_reduce", "all_gather") for s in (64, 512, 4096)
    }
    plain = [line for line in run.stdout.splitlines() if not line.startswith("#")]
    assert [len(line.split()) for line in plain] == [13] * 6
    path = tmp_path / "bench.txt"
    path.write_text(run.stdout)
    again = bench("--read", str(path), "--format", "json", "--plot", str(tmp_path / "x.svg"))
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["rows"]) == len(rows)
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
