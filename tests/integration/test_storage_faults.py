"""Storage that fails while a study runs: it stops, records nothing false, and goes on once that is mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.studies import done, faulty_ranks, only, processes_about, start, write_study
from wirecost.spec import Study, load
from wirecost.study import Store, run_study
from wirecost.study.store import StoreError

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "full_disk.py"
AT_ITERATION_2 = """\
import errno, signal
if os.environ["RANK"] == "1":
    original = loop.Batches.share
    def share(self, iteration, rank, ranks):
        if iteration == 2:
            {fault}
        return original(self, iteration, rank, ranks)
    loop.Batches.share = share
"""


@pytest.mark.parametrize(("option", "sizes_kib"), [("", (1500,)), ("--blind", (50, 74))])
def test_studies_on_a_disk_that_is_full_stop_and_go_on(option: str, sizes_kib: tuple[int, ...]) -> None:
    """Tokens, an experiment's first files, or its checkpoints don't fit; `benchmarks/full_disk.py` tries all sizes."""
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    command = [sys.executable, str(BENCHMARK), *([option] if option else []), "--sizes", *map(str, sizes_kib)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    counts = json.loads(run.stdout)
    print(counts)
    assert counts["wrong"] == [], run.stderr
    assert run.returncode == 0
    assert counts["stopped"] == counts["resumed"] == counts["sizes"] == len(sizes_kib)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), '/data/x')", "/data/x: can't be written: Disk quota"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "SIGBUS: memory that a file or /dev/shm stands for"),
        ("os.truncate(sys.argv[1] + '/samples/rank-1.jsonl', 3)", "rank-1.jsonl: can't be used: Input/output error"),
    ],
)  # fmt: skip
def test_a_rank_that_meets_a_fault_stops_the_study_and_resuming_finishes_it(
    tmp_path: Path, fault: str, message: str
) -> None:
    out, study = tmp_path / "out", load(Study, write_study(tmp_path))
    with pytest.raises(StoreError) as refusal, faulty_ranks(AT_ITERATION_2.format(fault=fault)):
        run_study(study, out)
    assert message in str(refusal.value)
    assert "--resume" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert list((out / "experiments").iterdir()) == []
    assert processes_about(out) == []
    done(only(run_study(study, out, resume=True)))


def test_counters_that_cannot_be_written_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, study = tmp_path / "out", load(Study, write_study(tmp_path))
    begin = Store.begin

    def with_full_counters(self: Store, experiment: object) -> Path:
        directory = begin(self, experiment)  # type: ignore[arg-type]
        (directory / "counters.jsonl").symlink_to("/dev/full")
        return directory

    monkeypatch.setattr(Store, "begin", with_full_counters)
    with pytest.raises(StoreError, match="No space left"):
        run_study(study, out)
    assert list((out / "experiments").iterdir()) == []
    monkeypatch.undo()
    done(only(run_study(study, out, resume=True)))


def test_damaged_results_are_named_kept_and_run_again_when_asked(tmp_path: Path) -> None:
    path, out = write_study(tmp_path, ("hosts: [2]", "hosts: [1, 2]")), tmp_path / "out"
    first, second = run_study(load(Study, path), out)
    raw = first.directory / "samples" / "rank-0.jsonl"
    raw.write_bytes(raw.read_bytes()[:-1] + b" ")
    run = start(path, out, "--resume")
    stdout, stderr = run.communicate(timeout=100)
    assert run.returncode == 1
    assert f"damaged: {first.directory.name}: samples/rank-0.jsonl has changed" in stderr
    assert "1 of 2 left out as damaged: --resume --repair runs them again" in stderr
    assert "warning damaged_result: " in stdout
    assert raw.read_bytes().endswith(b" ")
    before = (second.directory / "status.json").stat().st_ino
    run = start(path, out, "--resume", "--repair")
    stdout, stderr = run.communicate(timeout=100)
    assert run.returncode == 0, stderr
    assert "run again" in stderr
    assert "warning damaged_result" not in stdout
    assert (second.directory / "status.json").stat().st_ino == before
    contents = Store(out).contents(every_byte=True)
    assert (len(contents.results), contents.damaged) == (2, ())
    assert len(os.listdir(out / "experiments")) == 2


def can_mount() -> bool:
    rootless = ["--map-root-user"] if os.geteuid() else []
    command = ["unshare", "--mount", *rootless, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
