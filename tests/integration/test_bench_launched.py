"""`wirecost bench` as one of the ranks that somebody else started."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.launch.ports import free_port

pytest.importorskip("torch")

WIRECOST = [sys.executable, "-m", "wirecost", "bench"]
NO_MPI = (
    None
    if shutil.which("mpirun") and importlib.util.find_spec("mpi4py")
    else "no MPI here (mpirun, and mpi4py of the 'mpi' extra)"
)


def start(rank: int, port: int, *options: str, ranks: int = 2) -> subprocess.Popen[str]:
    variables = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return subprocess.Popen(
        [*WIRECOST, "--backend", "gloo", *options],
        env=os.environ | {k: str(v) for k, v in variables.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mpirun(ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mpirun", "--oversubscribe", "-n", str(ranks), *WIRECOST, "--backend", "mpi", *options],
        env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_two_ranks_of_a_launcher_measure_together_and_the_first_prints() -> None:
    port = free_port()
    ranks = [start(r, port, "-b", "64", "-e", "4K", "-f", "8", "-n", "2", "--format", "json") for r in (0, 1)]
    (out, err), (other_out, other_err) = (r.communicate(timeout=120) for r in ranks)
    assert [r.returncode for r in ranks] == [0, 0], err + other_err
    assert other_out == other_err == ""
    document = json.loads(out)
    assert document["request"]["hosts"] == 2
    assert document["network"]["emulated"] is False
    assert len(document["rows"]) == 6
    assert all(row["wrong"] == 0 and row["ranks"] == 2 for row in document["rows"])


def test_a_rank_that_never_comes_is_named() -> None:
    port = free_port()
    alone = [start(0, free_port(), "--timeout", "2 s"), start(1, port, "--timeout", "2 s")]
    (out, err), (other_out, other_err) = (r.communicate(timeout=60) for r in alone)
    assert [r.returncode for r in alone] == [1, 1]
    assert out == other_out == ""
    reason = f"rank 0 of 2 was not reachable at 127.0.0.1:{port} within 2 s (Connection refused)"
    assert (err, other_err) == (
        "wirecost: rank 1 of 2 did not start within 2 s\n",
        f"wirecost: rank 1: {reason}\n",
    )


def test_a_terminated_run_prints_what_it_has() -> None:
    """Launchers pass SIGTERM on instead of Ctrl-C."""
    port = free_port()
    ranks = [start(r, port, "all", "-b", "1K", "-e", "16M", "-f", "2", "--place", "in") for r in (0, 1)]
    assert ranks[0].stdout is not None
    next(line for line in ranks[0].stdout if line.startswith("#       size"))
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    (out, err), (other_out, other_err) = (r.communicate(timeout=60) for r in ranks)
    assert [r.returncode for r in ranks] == [128 + signal.SIGTERM, 1]
    assert err == "wirecost: ended by SIGTERM; all processes it had started are ended\n"
    assert (other_out, other_err) == ("", "")
    assert "# Out of bounds values : 0 OK" in out


def test_what_all_ranks_refuse_one_says() -> None:
    port = free_port()
    ranks = [start(r, port, "--hosts", "3") for r in (0, 1)]
    (_, err), (_, other_err) = (r.communicate(timeout=60) for r in ranks)
    assert [r.returncode for r in ranks] == [2, 2]
    assert "torchrun started 2 x 1 ranks; leave both out" in err
    assert other_err == ""


def test_under_mpirun_one_rank_asks_for_backend_mpi() -> None:
    runs = [
        subprocess.run(
            WIRECOST,
            env=os.environ | {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
        for rank in "01"
    ]
    assert [r.returncode for r in runs] == [2, 2]
    assert "mpirun started this, which serves --backend mpi" in runs[0].stderr
    assert runs[1].stderr == ""


@pytest.mark.skipif(NO_MPI is not None, reason=str(NO_MPI))
def test_every_collective_over_mpi_is_right() -> None:
    run = mpirun(
        4, "all", "-b", "1K", "-e", "16K", "-f", "16", "-n", "1", "-w", "1", "-d", "int32", "--format", "json"
    )
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert {row["collective"] for row in document["rows"]} == {*COLLECTIVES, BARRIER}
    assert all(row["wrong"] == 0 for row in document["rows"] if row["collective"] != BARRIER)
    assert document["request"]["launcher"] == "mpirun"


@pytest.mark.skipif(NO_MPI is not None, reason=str(NO_MPI))
def test_groups_over_mpi_and_a_type_that_it_lacks() -> None:
    run = mpirun(4, "reduce_scatter", "-b", "1K", "-n", "1", "--groups", "0,2:1,3")
    assert run.returncode == 0, run.stderr
    assert "2 groups of 2 ranks at once" in run.stdout
    refused = mpirun(2, "-d", "bfloat16")
    assert refused.returncode == 2
    assert refused.stderr.count("MPI has no type for bfloat16") == 1
