from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from support.results import STUDY, invented_breakdown, invented_store
from wirecost.errors import UnsupportedError
from wirecost.spec import Experiment, Study, parse_yaml, validate
from wirecost.study import Again, Result, Status, Store, one_experiment, run_study, runnable, runner
from wirecost.study.estimate import TimeLeft
from wirecost.study.manifest import SMALL_BYTES, write_manifest
from wirecost.study.progress import Silent, Watch
from wirecost.study.store import Damaged, Outcome, StoreError
from wirecost.units import Seconds

EXPERIMENT = validate(Study, parse_yaml(STUDY, "s"), "s").model_experiments()[0]


def test_progress_reads_what_is_new_and_counts_whole_lines(tmp_path: Path) -> None:
    class Seen(Silent):
        def __init__(self) -> None:
            self.done: list[int] = []

        def iterations_done(self, done: int, total: int, left_s: float) -> None:
            self.done.append(done)

    seen, samples = Seen(), tmp_path / "rank-0.jsonl"
    watch = Watch(seen, EXPERIMENT, [], TimeLeft())
    watch.look(samples)
    for text in ("{}\n{", "{}\n{}\n{}", "{}\n{}\n{}\n"):
        samples.write_text(text)
        watch.look(samples)
    assert seen.done == [0, 1, 2, 3]
    assert (watch.total, EXPERIMENT.min_time) == (EXPERIMENT.warmup + EXPERIMENT.iterations, 0)
    # What was read before isn't read again.
    samples.write_bytes(b"\n" * samples.stat().st_size + b"{}\n")
    watch.look(samples)
    assert seen.done[-1] == 4
    # A least time may bring more iterations than were asked for.
    with samples.open("ab") as file:
        file.write(b"{}\n" * 100)
    watch.look(samples)
    assert watch.done == watch.total == 104


def test_a_least_time_is_expected_to_pass() -> None:
    longer = EXPERIMENT.model_copy(update={"min_time": Seconds(500)})
    expected = TimeLeft()
    assert expected.seconds(longer) > 500 > expected.seconds(EXPERIMENT)
    before = expected.seconds(EXPERIMENT)
    expected.learn(longer, 520)  # of an unknown number of iterations
    assert expected.seconds(EXPERIMENT) == before
    expected.learn(EXPERIMENT, 2000)
    assert expected.seconds(longer) == expected.seconds(EXPERIMENT)


def test_what_needs_more_gpus_than_are_here_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STUDY.replace("hosts: [2, 4]", "hosts: [2, 4]\ndevice: cuda\nbenchmark: false")
    study = validate(Study, parse_yaml(text, "s"), "s")
    ran: list[int] = []

    def trained(store: Store, experiment: Experiment, *_: object, launcher: object) -> Outcome:
        ran.append(experiment.ranks)
        store.begin(experiment)
        outcome = Outcome(status=Status.OOM)
        store.publish(experiment, outcome, None)
        return outcome

    for module in (runner, runnable):
        monkeypatch.setattr(module, "gpus_here", lambda: 2)
    monkeypatch.setattr(runner, "run_one", trained)
    results = run_study(study, tmp_path)
    assert set(ran) == {2}
    reasons = {r.outcome.reason for r in results if r.outcome.status is Status.SKIPPED}
    assert reasons == {"device cuda needs a GPU for each rank: 4, and PyTorch finds 2 here"}
    assert len(results) == len(study.model_experiments())
    monkeypatch.setattr(runnable, "gpus_here", lambda: 1)
    with pytest.raises(
        UnsupportedError, match="a GPU for each rank: 2, and PyTorch finds 1 here; use fewer hosts"
    ):
        run_study(study, tmp_path / "other")


class Noted(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bool, bool]] = []
        self.finished_before: int | None = None

    def damaged(self, experiment: Damaged, planned: bool, again: bool) -> None:
        self.found.append((experiment.name, planned, again))

    def study_started(self, experiments: int, already_finished: int, left_s: float) -> None:
        self.finished_before = already_finished


def resumed(
    out: Path, monkeypatch: pytest.MonkeyPatch, *, repair: bool = False
) -> tuple[list[str], Noted, list[Result]]:
    """The names of the experiments that resuming the invented study runs, what it told, and what it returns."""
    ran: list[str] = []

    def trained(store: Store, experiment: Experiment, *_: object, launcher: object) -> Outcome:
        ran.append(experiment.slug)
        store.begin(experiment)
        outcome = Outcome(status=Status.DONE)
        store.publish(experiment, outcome, invented_breakdown(experiment))
        return outcome

    monkeypatch.setattr(runner, "run_one", trained)
    monkeypatch.setattr(runner, "check_runnable", lambda study: None)
    noted = Noted()
    study = validate(Study, parse_yaml(f"{STUDY}benchmark: false\n", "s"), "s")
    return ran, noted, run_study(study, out, resume=True, progress=noted, again=Again(damaged=repair))


def test_damaged_results_are_left_out_unless_they_are_to_be_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = invented_store(tmp_path)
    (store.experiments / "of-another-study").mkdir()
    (store.experiments / "of-another-study" / "status.json").write_text("{")
    victim = store.contents().results[3].directory
    large = victim / "samples" / "rank-0.jsonl"
    large.write_text("x" * (SMALL_BYTES + 1))
    write_manifest(victim, victim.name)
    large.write_text("y" * (SMALL_BYTES + 1))  # which only who reads every byte notices
    ran, noted, results = resumed(tmp_path, monkeypatch)
    assert ran == []
    assert noted.found == [(victim.name, True, False), ("of-another-study", False, False)]
    assert noted.finished_before == 15
    assert len(results) == 15
    assert victim.name not in {r.directory.name for r in results}
    assert large.read_text().startswith("y")
    ran, noted, results = resumed(tmp_path, monkeypatch, repair=True)
    assert ran == [victim.name]
    assert noted.found == [(victim.name, True, True), ("of-another-study", False, False)]
    assert (noted.finished_before, len(results)) == (15, 16)
    assert not large.exists()
    assert (store.experiments / "of-another-study").exists()


def test_a_full_disk_that_an_earlier_version_called_a_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "rank 1: OSError: [Errno 28] No space left on device"
    outcomes = {
        0: Outcome(status=Status.FAILED, reason=full),
        1: Outcome(status=Status.FAILED, reason="rank 1: LookupError: the moon is in the wrong phase"),
    }
    store = invented_store(tmp_path, outcomes=outcomes)
    names = [r.directory.name for r in store.contents().results]
    ran, _, results = resumed(tmp_path, monkeypatch)
    assert ran == names[:1]
    assert [r.outcome.status for r in results].count(Status.FAILED) == 1


def test_a_fault_takes_the_unfinished_experiment_away_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = invented_store(tmp_path)
    experiment = store.contents().results[0].experiment
    store.forget(experiment)

    def full(*_: object) -> Outcome:
        store.begin(experiment)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")

    monkeypatch.setattr(one_experiment, "_run_and_publish", full)
    monkeypatch.setattr(runner, "check_runnable", lambda study: None)
    study = validate(Study, parse_yaml(f"{STUDY}benchmark: false\n", "s"), "s")
    with pytest.raises(StoreError, match=r"^/data/x: can't be written: No space left on device; .*--resume"):
        run_study(study, tmp_path, resume=True)
    assert len(list(store.experiments.iterdir())) == 15
    assert not store.contents(every_byte=True).damaged
