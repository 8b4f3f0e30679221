"""How an experiment ended, and what is no end of it: storage that failed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from support.results import STUDY
from wirecost.spec import Study, parse_yaml, validate
from wirecost.storage import FAULTS, MAPPED, StorageError
from wirecost.study import Status, judge
from wirecost.study.judge import judge as judged
from wirecost.study.result import Outcome

EXPERIMENT = validate(Study, parse_yaml(STUDY, "s"), "s").experiments()[0]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("logs", "samples", "failures"):
        (tmp_path / name).mkdir()
    (tmp_path / "logs" / "cell.log").write_text("")
    return tmp_path


def test_an_experiment_whose_process_died_says_the_last_that_it_said(directory: Path) -> None:
    log = directory / "logs" / "cell.log"
    log.write_text("Traceback:\n  somewhere\nLookupError: the moon is in the wrong phase\n")
    outcome, breakdown = judged(EXPERIMENT, directory, 1, cores=2)
    assert breakdown is None
    assert outcome.status is Status.FAILED
    assert (outcome.reason or "").endswith(
        "exit code 1 before its ranks did: LookupError: the moon is in the wrong phase"
    )
    assert len(outcome.log_tail) == 3
    log.write_text("")
    assert (judged(EXPERIMENT, directory, 1, cores=2)[0].reason or "").endswith("before its ranks did")


@pytest.mark.parametrize("fault", [*FAULTS.values(), MAPPED])
def test_an_exit_code_of_the_storage_is_no_outcome(directory: Path, fault: object) -> None:
    code = next(f.exit_code for f in (*FAULTS.values(), MAPPED) if f == fault)
    # Not even with an outcome beside it.
    (directory / "outcome.json").write_text(Outcome(status=Status.FAILED, reason="rank 0: x").model_dump_json())
    with pytest.raises(StorageError) as refusal:
        judged(EXPERIMENT, directory, code, cores=2)
    assert (refusal.value.fault, refusal.value.path) == (fault, directory)
    report = {"kind": "storage", "path": "/data/samples"}
    (directory / "failures" / "rank-1.json").write_text(json.dumps(report))
    with pytest.raises(StorageError, match=r"^/data/samples: "):
        judged(EXPERIMENT, directory, code, cores=2)


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        Outcome(status=Status.FAILED, reason="rank 0 ended with exit code 1 and no traceback"),
        Outcome(status=Status.OOM, reason="rank 0: too big"),
        Outcome(status=Status.SKIPPED, reason="no links"),
    ],
)
def test_nothing_has_failed_while_the_disk_is_full(
    directory: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None
) -> None:
    """A process without room can end in ways that don't tell of it."""
    if outcome is not None:
        (directory / "outcome.json").write_text(outcome.model_dump_json())

    def no_room(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(judge, "check_writable", no_room)
    with pytest.raises(OSError, match="No space left"):
        judged(EXPERIMENT, directory, 1, cores=2)


def test_a_log_that_tells_of_a_full_disk_is_believed_where_no_rank_told_more(directory: Path) -> None:
    full = "OSError: [Errno 28] No space left on device"
    (directory / "logs" / "cell.log").write_text(f"Traceback:\n{full}\n")
    with pytest.raises(StorageError, match="No space left"):
        judged(EXPERIMENT, directory, 1, cores=2)
    silent = Outcome(
        status=Status.FAILED, reason="rank 0 ended with exit code 1 and no traceback", log_tail=(full,)
    )
    (directory / "outcome.json").write_text(silent.model_dump_json())
    with pytest.raises(StorageError, match="No space left"):
        judged(EXPERIMENT, directory, 0, cores=2)
    told = silent.model_copy(update={"reason": "rank 0: LookupError: moon", "traceback": "LookupError: moon"})
    (directory / "outcome.json").write_text(told.model_dump_json())
    assert judged(EXPERIMENT, directory, 0, cores=2) == (told, None)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"status": "done"}'])
def test_samples_or_outcomes_that_are_none_fail_the_experiment(directory: Path, content: str) -> None:
    (directory / "outcome.json").write_text(content)
    for rank in range(EXPERIMENT.ranks):
        (directory / "samples" / f"rank-{rank}.jsonl").write_text(
            "{}\n" * (EXPERIMENT.warmup + EXPERIMENT.iterations)
        )
    outcome, breakdown = judged(EXPERIMENT, directory, 0, cores=2)
    assert (outcome.status, breakdown) == (Status.FAILED, None)
    assert "can't be read" in (outcome.reason or "")
    assert "\n" not in (outcome.reason or "")
