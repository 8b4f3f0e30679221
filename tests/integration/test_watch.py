"""`wirecost.watch` in a job of two ranks."""

import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).parents[1] / "support" / "jobs" / "watched.py"


def test_a_straggler_is_named_within_twenty_iterations() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(JOB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # Rank 1 is slow from iteration 40 on.
    (late,) = (line for line in lines if "is late" in line)
    assert "rank 1 is late" in late
    assert late.split(":")[1] in (" iteration 50", " iteration 60")
    reports = [line for line in lines if "exposed communication" in line]
    assert [line.split(":")[1] for line in reports] == [f" iteration {n}" for n in (40, 80, 120)]
    assert all("waiting for rank 1" in line for line in reports[1:])
    assert not any("unknown" in line for line in reports)
