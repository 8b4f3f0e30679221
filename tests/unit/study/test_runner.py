from __future__ import annotations

from pathlib import Path

import pytest

from support.results import STUDY
from wirecost.errors import UnsupportedError
from wirecost.spec import Experiment, Study, parse_yaml, validate
from wirecost.study import Status, Store, run_study, runnable, runner
from wirecost.study.estimate import TimeLeft
from wirecost.study.runner import Silent, _Watch
from wirecost.study.store import Outcome
from wirecost.units import Seconds

EXPERIMENT = validate(Study, parse_yaml(STUDY, "s"), "s").experiments()[0]


def test_progress_reads_what_is_new_and_counts_whole_lines(tmp_path: Path) -> None:
    class Seen(Silent):
        def __init__(self) -> None:
            self.done: list[int] = []

        def iterations_done(self, done: int, total: int, left_s: float) -> None:
            self.done.append(done)

    seen, samples = Seen(), tmp_path / "rank-0.jsonl"
    watch = _Watch(seen, EXPERIMENT, [], TimeLeft())
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

    def trained(store: Store, experiment: Experiment, *_: object) -> Outcome:
        ran.append(experiment.ranks)
        store.begin(experiment)
        outcome = Outcome(status=Status.OOM)
        store.publish(experiment, outcome, None)
        return outcome

    for module in (runner, runnable):
        monkeypatch.setattr(module, "gpus_here", lambda: 2)
    monkeypatch.setattr(runner, "_run_one", trained)
    results = run_study(study, tmp_path)
    assert set(ran) == {2}
    reasons = {r.outcome.reason for r in results if r.outcome.status is Status.SKIPPED}
    assert reasons == {"device cuda needs a GPU for each rank: 4, and PyTorch finds 2 here"}
    assert len(results) == len(study.experiments())
    monkeypatch.setattr(runnable, "gpus_here", lambda: 1)
    with pytest.raises(
        UnsupportedError, match="a GPU for each rank: 2, and PyTorch finds 1 here; use fewer hosts"
    ):
        run_study(study, tmp_path / "other")
