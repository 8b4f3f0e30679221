"""`wirecost run --networks native` as the tasks of a real Slurm's step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.slurm import NO_SLURM, slurm
from wirecost.study import Store

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(NO_SLURM is not None, reason=str(NO_SLURM))]

JOB = Path(__file__).parents[1] / "support" / "jobs" / "ddp.py"
RUN = [sys.executable, "-m", "wirecost", "run", "--networks", "native"]
SHORT = ["--steps", "4", "--warmup", "2", "--profile", "1", "--format", "json"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with slurm() as found:
        yield found


def test_the_tasks_of_a_step_are_the_ranks_of_an_unchanged_job(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # The script reads torchrun's variables, which srun doesn't set.
    command = ["srun", "-n", "2", *RUN, *SHORT, "--out", str(out), "--", sys.executable, str(JOB)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]  # of the first task alone
    assert (row["network"], row["ranks"], row["status"], row["iterations"]) == ("native", 2, "done", 4)
    (result,) = Store(out).contents(every_byte=True).results
    assert result.breakdown is not None and result.breakdown.profile is not None
    assert result.breakdown.profile.reason is None


def test_a_command_is_submitted_and_its_table_printed_when_it_is_finished(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [
        *RUN, *SHORT, "--launcher", "slurm", "--hosts", "1x2", "--out", str(tmp_path), "--", sys.executable, str(JOB)
    ]  # fmt: skip
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert first.returncode == 0, first.stderr
    assert "1 experiment of 1x2" in first.stdout
    deadline = time.monotonic() + 200
    while subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 0, second.stderr
    (row,) = json.loads(second.stdout)["rows"]
    assert (row["network"], row["ranks"], row["status"], row["iterations"]) == ("native", 2, "done", 4)


def test_a_batch_script_is_no_task_of_a_step(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["sbatch", "--wait", "-n", "2", "-o", str(tmp_path / "output"), "--wrap"]
    run = " ".join([*RUN, *SHORT, "--hosts", "1x2", "--", sys.executable, str(JOB)])
    done = subprocess.run(
        [*command, run], env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    output = (tmp_path / "output").read_text()
    assert done.returncode == 0, output + done.stderr
    (row,) = json.loads(output[output.index("{") :])["rows"]
    assert (row["ranks"], row["status"]) == (2, "done")
