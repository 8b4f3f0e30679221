"""`wirecost bench` whose ranks are wrong, late or dead, and requests that can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.benches import bench, faulty, request
from support.commands import wirecost_here
from wirecost.collectives.bench import BenchError, run_bench

pytest.importorskip("torch")


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
    assert not _bench_output.run_and_print(wanted, format="text", plot=None, cluster=None)
    out, err = capsys.readouterr()
    assert "FAILED" in out
    assert "1 elements are wrong" in err


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    body = "if rank == 2: time.sleep(600)"
    wanted = request(ranks_per_host=3, timeout="20 s")
    with pytest.raises(BenchError, match="rank 2 of 3 did not start within 20 s"):
        run_bench(wanted, worker=faulty(tmp_path, body))


def test_a_rank_that_stops_is_named_with_what_it_did_last(tmp_path: Path) -> None:
    body = (
        "import wirecost.collectives.driver as d\nright = d.measure\n"
        "def stop(setup, case):\n    if rank == 1 and case.size_bytes > 64: time.sleep(600)\n"
        "    return right(setup, case)\nd.measure = stop"
    )
    wanted = request(smallest="64", largest="128", timeout="20 s", place="in")
    with pytest.raises(
        BenchError, match=r"rank \d of 2 stood still within 20 s, last after: all_reduce 64 B in_place"
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
        (["all_reduce", "--hosts", "2"], "--network"),
        (["all_reduce", "--network", "emulated-1gb", "--hosts", "2"], "did you mean 'emulated-1g'"),
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
        (["--read", "nowhere.txt"], "no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(options: list[str], said: str) -> None:
    run = wirecost_here("bench", "--backend", "gloo", *options)
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
