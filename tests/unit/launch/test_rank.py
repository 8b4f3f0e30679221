"""What a rank reports of why it failed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from wirecost.launch.failures import storage_paths
from wirecost.launch.rank import EXIT_FAILED, report_failure
from wirecost.storage import FAULTS, fault_of_exit

FULL = (
    "CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of which 595.12 MiB is "
    "free. Including non-PyTorch memory, this process has 139.21 GiB memory in use. Of the allocated memory 125.47 GiB "
    "is allocated by PyTorch, and 12.45 GiB is reserved by PyTorch but unallocated. See documentation for Memory"
)


class OutOfMemoryError(RuntimeError):
    """PyTorch's."""


def test_out_of_memory_is_reported_in_short_and_its_traceback_whole(tmp_path: Path) -> None:
    report_failure(tmp_path, 1, OutOfMemoryError(FULL))
    failure = json.loads((tmp_path / "failures" / "rank-1.json").read_bytes())
    assert failure["kind"] == "out_of_memory"
    assert failure["reason"] == (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of "
        "which 595.12 MiB is free."
    )
    assert "See documentation" in failure["traceback"]
    assert failure["memory"]["asked_bytes"] == round(12.27 * 2**30)


def ended(directory: Path, body: str) -> subprocess.CompletedProcess[str]:
    """A rank 0 in `directory` whose body is `body`."""
    code = (
        "import errno, os, sys\nfrom pathlib import Path\nfrom wirecost.launch.rank import run_as_rank\n"
        f"def body(directory, rank):\n    {body}\n"
        "run_as_rank(Path(sys.argv[1]), body)\n"
    )
    environment = {**os.environ, "RANK": "0"}
    command = [sys.executable, "-c", code, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


def test_a_fault_of_the_storage_is_told_by_the_exit_code_and_names_the_file(tmp_path: Path) -> None:
    for number in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO):
        run = ended(tmp_path, f"raise OSError({number}, os.strerror({number}), '/data/samples')")
        assert fault_of_exit(run.returncode) == FAULTS[number]
        assert storage_paths(tmp_path) == ["/data/samples"]


def test_a_rank_that_cannot_write_its_report_says_so_by_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / ".rank-0.json").symlink_to("/dev/full")
    run = ended(tmp_path, "raise LookupError('the moon is in the wrong phase')")
    assert fault_of_exit(run.returncode) == FAULTS[errno.ENOSPC]
    assert "the moon" in run.stderr
    assert storage_paths(tmp_path) == []


def test_a_log_that_cannot_be_written_is_no_good_end(tmp_path: Path) -> None:
    run = ended(tmp_path, "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('lost')")
    assert fault_of_exit(run.returncode) == FAULTS[errno.ENOSPC]
    assert ended(tmp_path, "print('written')").returncode == 0


def test_another_error_is_no_fault_of_the_storage(tmp_path: Path) -> None:
    run = ended(tmp_path, "raise LookupError('the moon is in the wrong phase')")
    assert run.returncode == EXIT_FAILED
    assert json.loads((tmp_path / "failures" / "rank-0.json").read_bytes())["kind"] == "error"
