"""`wirecost bench` as the tasks of a real Slurm's step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.slurm import NO_SLURM, slurm

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(NO_SLURM is not None, reason=str(NO_SLURM))]

BENCH = [sys.executable, "-m", "wirecost", "bench"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with slurm() as found:
        yield found


def test_the_tasks_of_a_step_are_the_ranks(environment: dict[str, str]) -> None:
    run = subprocess.run(
        ["srun", "-n", "2", *BENCH, "-b", "64", "-e", "4K", "-f", "8", "-n", "2", "--format", "json"],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)  # of the first task alone
    request = document["request"]
    assert (request["launcher"], request["hosts"], request["ranks_per_host"]) == ("srun", 1, 2)
    assert len(document["rows"]) == 6
    assert all(row["wrong"] == 0 and row["ranks"] == 2 for row in document["rows"])


def test_a_cancelled_step_prints_what_it_has(environment: dict[str, str]) -> None:
    name = "to-be-cancelled"
    with subprocess.Popen(
        ["srun", "-u", "-J", name, "-n", "2", *BENCH, "all", "-b", "1K", "-e", "16M", "-f", "2", "--place", "in"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as step:  # fmt: skip
        assert step.stdout is not None
        next(line for line in step.stdout if line.startswith("#       size"))
        subprocess.run(["scancel", "-n", name], env=environment, check=True)
        out, err = step.communicate(timeout=120)
    assert step.returncode != 0
    assert "# Out of bounds values : 0 OK" in out
    assert err.count("wirecost: ended by SIGTERM") == 1
