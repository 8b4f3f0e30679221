"""States of a study's experiments, logs, and runs that are cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.results import STUDY, invented_store
from wirecost.errors import SpecError
from wirecost.study.cancel import cancel_runs
from wirecost.study.logs import logs_of
from wirecost.study.run_record import FOLDER, RunRecord, recorded_run, runs_of
from wirecost.study.state import State, matching, read_state
from wirecost.study.store import PARTIAL, Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    invented_store(root, text=STUDY)
    return root


def begun(root: Path, iterations: int) -> Path:
    """Removes an experiment's result and leaves the directory of one that has begun."""
    store = Store(root)
    experiment = store.study().experiments()[0]
    store.forget(experiment)
    directory = store.begin(experiment)
    (directory / "samples" / "rank-0.jsonl").write_text("{}\n" * iterations)
    return directory


def test_a_finished_study_has_no_work_left(root: Path) -> None:
    state = read_state(root)
    assert state.count(State.WAITING, State.RUNNING) == 0
    assert len(state.experiments) == len(Store(root).study().experiments()) > 0
    assert state.left_s == 0
    assert matching(state.experiments, [State.RUNNING]) == []


def test_an_experiment_that_runs_shows_its_iterations_and_an_abandoned_one_is_interrupted(root: Path) -> None:
    begun(root, 3)
    assert read_state(root).experiments[0].state is State.INTERRUPTED
    with recorded_run(root):
        (run,) = runs_of(root)
        assert (run.pid, run.is_here, run.lives) == (os.getpid(), True, True)
        first = read_state(root).experiments[0]
        assert (first.state, first.iterations) == (State.RUNNING, 3)
        assert first.seconds is not None
    assert runs_of(root) == []
    assert read_state(root).left_s > 0
    assert not (root / FOLDER).exists()


def test_a_damaged_result_is_named(root: Path) -> None:
    experiment = Store(root).study().experiments()[0]
    (root / "experiments" / experiment.slug / "status.json").write_text("{")
    first = read_state(root).experiments[0]
    assert first.state is State.DAMAGED
    assert "status.json" in (first.reason or "")


def test_a_record_of_a_process_that_is_gone_or_of_another_one_counts_as_absent(root: Path) -> None:
    folder = root / FOLDER
    folder.mkdir()
    with recorded_run(root):
        (record,) = runs_of(root)
    folder.mkdir(exist_ok=True)
    reused = record.model_copy(update={"started_ticks": record.started_ticks + 1})
    (folder / "reused.json").write_text(reused.model_dump_json())
    (folder / "broken.json").write_text("{")
    assert runs_of(root) == []
    elsewhere = RunRecord(host="another-machine", pid=1, started_ticks=1, begun=0.0)
    (folder / "elsewhere.json").write_text(elsewhere.model_dump_json())
    assert [run.host for run in runs_of(root)] == ["another-machine"]


def test_a_run_is_interrupted_and_awaited(root: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from wirecost.study.run_record import recorded_run\n"
        "with recorded_run(Path(sys.argv[1])): print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines: list[str] = []
        # The child has to be awaited by its parent, or it would stay as a zombie and seem to live.
        import threading

        thread = threading.Thread(target=lambda: lines.extend(cancel_runs(root)))
        thread.start()
        process.wait(30)
        thread.join(30)
    assert lines == [f"ended process {process.pid}; finished experiments are kept, --resume goes on"]
    assert cancel_runs(root) == [f"nothing runs on {root}"]


def test_logs_are_found_by_a_part_of_a_name(root: Path) -> None:
    directory = begun(root, 1)
    (directory / "logs" / "rank-0.log").write_text("".join(f"line {n}\n" for n in range(100)))
    name = directory.name.removeprefix(PARTIAL)
    assert logs_of(root, None, lines=2) == [(f"{name}/rank-0.log", ["line 98", "line 99"])]
    assert logs_of(root, name, rank=0, lines=1) == [(f"{name}/rank-0.log", ["line 99"])]
    with pytest.raises(SpecError, match="no experiment with 'nonsense' in its name"):
        logs_of(root, "nonsense")
    with pytest.raises(SpecError, match="there is no log of rank 7"):
        logs_of(root, name, rank=7)
    with pytest.raises(SpecError, match=r"\d+ experiments with 'small' in its name"):
        logs_of(root, "small")


def test_a_claim_is_held_by_one_run_at_a_time(root: Path) -> None:
    store = Store(root)
    experiment = store.study().experiments()[0]
    with store.locked(shared=True), Store(root).locked(shared=True):
        with store.claimed(experiment) as mine, Store(root).claimed(experiment) as theirs:
            assert (mine, theirs) == (True, False)
        with Store(root).claimed(experiment) as later:
            assert later
