"""Studies that are killed, stopped, cut by a budget or run twice in one place."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from support.studies import (
    network_namespaces,
    processes_about,
    start,
    wait_for_samples,
    wait_until_gone,
    write_study,
)
from wirecost.spec import Study, load
from wirecost.study import Status, run_study

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def test_killed_at_any_moment_it_resumes_without_losing_or_repeating(tmp_path: Path) -> None:
    before = network_namespaces()
    study = write_study(tmp_path, ("hosts: [2]", "hosts: [1, 2]"), ("[all-reduce]", "[all-reduce, ddp]"))
    out = tmp_path / "out"
    for number in range(5):
        run = start(study, out, "--resume")
        # Each time later: while experiments start, train, finish, and in between.
        time.sleep(1.5 + 2.2 * number)
        finished = {p.parent.name: p.stat().st_ino for p in out.glob("experiments/[!.]*/status.json")}
        ended = run.poll() is not None
        run.send_signal(signal.SIGKILL)
        run.communicate()
        for name, inode in finished.items():
            assert (out / "experiments" / name / "status.json").stat().st_ino == inode
        if ended:
            break
    wait_until_gone(out, before)
    finished = {p.parent.name: p.stat().st_ino for p in out.glob("experiments/[!.]*/status.json")}
    results = run_study(load(Study, study), out, resume=True)
    assert len(results) == 4
    assert {r.outcome.status for r in results} == {Status.DONE}
    for name, inode in finished.items():
        assert (out / "experiments" / name / "status.json").stat().st_ino == inode
    assert not list(out.glob("experiments/.partial-*"))


def test_a_budget_starts_nothing_that_does_not_fit(tmp_path: Path) -> None:
    study, out = write_study(tmp_path), tmp_path / "out"
    run = start(study, out, "--budget", "1 s")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "1 of 1 experiments did not fit into 1 s: go on with --resume" in err
    assert not list(out.glob("experiments/*"))
    run = start(study, out, "--budget", "soon")
    _, err = run.communicate(timeout=60)
    assert (run.returncode, err.count("\n")) == (2, 1)
    assert "--budget" in err


def test_ctrl_c_cleans_up(tmp_path: Path) -> None:
    before = network_namespaces()
    out = tmp_path / "out"
    run = start(write_study(tmp_path, ("iterations: 3", "iterations: 100000")), out)
    wait_for_samples(out)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert err.splitlines()[-1] == "wirecost: interrupted"
    assert "Traceback" not in err
    assert processes_about(out) == []
    wait_until_gone(out, before)


def test_two_runs_in_one_place(tmp_path: Path) -> None:
    study, out = write_study(tmp_path, ("iterations: 3", "iterations: 100000")), tmp_path / "out"
    first = start(study, out)
    wait_for_samples(out)
    second = start(study, out, "--resume")
    _, err = second.communicate(timeout=60)
    assert second.returncode == 2
    assert err == f"wirecost: {out}: another run is writing here; wait for it or use --out\n"
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    third = start(study, out)
    _, err = third.communicate(timeout=60)
    assert third.returncode == 2
    assert "holds an earlier run; go on with --resume" in err
