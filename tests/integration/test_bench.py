"""`wirecost bench` over real gloo on real, shaped links. Counts, bytes and caps decide; time never does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wirecost.collectives.bench import BenchError, run_bench
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.collectives.options import request_from
from wirecost.collectives.readers import parse_results
from wirecost.collectives.request import BenchRequest

pytest.importorskip("torch")

# A rank's command that does something else first.
FAULTY = """\
import os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
{body}
from wirecost.collectives.worker import main
sys.exit(main())
"""


def request(**changes: Any) -> BenchRequest:
    options: dict[str, Any] = {
        "collectives": ["all_reduce"],
        "smallest": "64K",
        "largest": None,
        "factor": None,
        "step": None,
        "hosts": 1,
        "ranks_per_host": None,
        "fabric": None,
        "groups": "1",
        "backend": "gloo",
        "dtype": "float",
        "redop": "sum",
        "iterations": 1,
        "warmup": 1,
        "check": True,
        "place": "both",
        "timeout": "60 s",
        "seed": 1,
    }
    return request_from(**(options | changes))


def faulty(folder: Path, body: str) -> list[str]:
    path = folder / "faulty.py"
    path.write_text(FAULTY.format(body=body))
    return [sys.executable, str(path)]


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirecost", "bench", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_every_collective_is_right_on_four_ranks() -> None:
    """Also with an integer type, and a number of elements that is no round one."""
    names = [*COLLECTIVES, BARRIER]
    for dtype, size in (("bfloat16", "1000"), ("int32", "65552")):
        _, rows = run_bench(request(collectives=names, ranks_per_host=4, dtype=dtype, smallest=size))
        assert {r.collective for r in rows} == set(names)
        assert all(r.wrong == 0 for r in rows if r.collective != BARRIER)
        assert all(r.time_ns > 0 and r.ranks == 4 for r in rows)


@pytest.mark.needs_root
def test_the_bus_bandwidth_never_exceeds_the_cap() -> None:
    names = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv_bidirectional"]
    wanted = request(collectives=names, hosts=2, fabric="emulated-300m", smallest="1M", iterations=2, place="in")
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
    wanted = request(hosts=2, ranks_per_host=2, groups="2", fabric="emulated-300m", smallest="2M", place="in")
    _, (row,) = run_bench(wanted)
    assert len(row.groups_ns) == 2
    assert row.wrong == 0
    # Two rings of which each moves the size through one host's link: together not above the cap.
    assert 2 * (row.busbw_Bps or 0) < 300e6 / 8 * 1.2


@pytest.mark.parametrize(
    ("collective", "body"),
    [
        ("all_reduce", "right = dist.all_reduce\ndef wrong(t, *a, **k):\n    right(t, *a, **k)\n    if rank == 1 and t.numel() > 10: t[7] += 1\ndist.all_reduce = wrong"),
        ("all_gather", "right = dist.all_gather_into_tensor\ndef wrong(t, *a, **k):\n    right(t, *a, **k)\n    if rank == 0: t[0] += 1\ndist.all_gather_into_tensor = wrong"),
    ],
)  # fmt: skip
def test_a_wrong_result_is_counted(collective: str, body: str, tmp_path: Path) -> None:
    _, rows = run_bench(request(collectives=[collective], place="out"), worker=faulty(tmp_path, body))
    assert [r.wrong for r in rows] == [1]


def test_a_wrong_result_is_exit_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from wirecost.cli import _bench_output

    body = "right = dist.broadcast\ndef wrong(t, *a, **k):\n    right(t, *a, **k)\n    if rank == 1: t[3] = 99\ndist.broadcast = wrong"
    wanted = request(collectives=["broadcast"], place="in")
    worker = faulty(tmp_path, body)
    monkeypatch.setattr(_bench_output, "run_bench", lambda r, **k: run_bench(r, worker=worker, **k))
    assert not _bench_output.run_and_print(wanted, as_json=False, plot=None, cluster=None)
    out, err = capsys.readouterr()
    assert "FAILED" in out
    assert "1 elements came out wrong" in err


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    body = "if rank == 2: time.sleep(600)"
    wanted = request(ranks_per_host=3, timeout="15 s")
    with pytest.raises(BenchError, match="rank 2 of 3 never came: not started within 15 s"):
        run_bench(wanted, worker=faulty(tmp_path, body))


def test_a_rank_that_stops_is_named_with_what_it_did_last(tmp_path: Path) -> None:
    body = (
        "import wirecost.collectives.driver as d\nright = d.measure\n"
        "def stop(setup, case):\n    if rank == 1 and case.size_bytes > 64: time.sleep(600)\n"
        "    return right(setup, case)\nd.measure = stop"
    )
    wanted = request(smallest="64", largest="128", timeout="15 s", place="in")
    with pytest.raises(
        BenchError, match=r"rank \d of 2 stood still within 15 s, last after: all_reduce 64 B in_place"
    ):
        run_bench(wanted, worker=faulty(tmp_path, body))


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="rank 1 was killed by SIGKILL"):
        run_bench(request(), worker=faulty(tmp_path, "if rank == 1: os.kill(os.getpid(), 9)"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["all_gather", "-b", "6"], "does not divide"),
        (["all_reduce", "-d", "fp9"], "unknown dtype"),
        (["all_redcue"], "did you mean 'all_reduce'"),
        (["all_reduce", "--hosts", "2"], "--fabric"),
        (["all_reduce", "--fabric", "emulated-1gb", "--hosts", "2"], "did you mean 'emulated-1g'"),
        (["all_reduce", "-b", "4096 GiB"], "lower the largest size"),
        (["all_reduce", "-b", "8X"], "-b: "),
        (["all_reduce", "-b", "1M", "-e", "1K"], "from a smaller one"),
        (["all_reduce", "-o", "mean"], "unknown operation"),
        (["all_reduce", "--backend", "nonsense"], "unknown backend 'nonsense'"),
        (["all_reduce", "--backend", "mpi"], "mpirun -n 2 wirecost bench"),
        (["all_reduce", "-G", "1"], "CUDA graphs are for --backend nccl"),
        (["all_reduce", "--groups", "0,1:1,2", "--ranks-per-host", "3"], "one group at most"),
        (["all_reduce", "--timeout", "5"], "needs a unit"),
        (["send_recv", "--ranks-per-host", "3"], "needs pairs"),
        (["all_reduce", "--plot", "x.pdf"], ".png or .svg"),
        (["all_reduce", "--cluster", "nowhere.yaml"], "no such file"),
        (["--read", "nowhere.txt"], "No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(options: list[str], said: str) -> None:
    run = bench("--backend", "gloo", *options)
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1
    assert said in run.stderr
    assert not run.stdout


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there are GPUs here")
def test_nccl_without_gpus_is_refused() -> None:
    run = bench("--backend", "nccl", "-b", "8")
    assert run.returncode == 2
    assert "--backend gloo" in run.stderr
    assert len(run.stderr.splitlines()) == 1


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
