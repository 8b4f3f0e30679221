"""The search for the largest micro-batch: few trials, ends that are proven, and nothing but the results as state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.results import invented_breakdown
from wirecost.breakdown import MemoryKind, PeakMemory
from wirecost.errors import SpecError
from wirecost.report import read_report
from wirecost.report.largest_batch import largest_batches
from wirecost.spec import MOST_TRIALS, Experiment, Study, parse_yaml, validate
from wirecost.study import Status, Store
from wirecost.study.largest_batch import MemoryLine, Trial, largest, next_batch, predicted_memory
from wirecost.study.result import Outcome

MIB, GIB = 1 << 20, 1 << 30
STUDY = """\
name: largest
workloads: [{name: nano, layers: 4, hidden: 256, heads: 4, vocab_size: 2048, sequence_length: 128}]
networks: [emulated-1g, emulated-100m]
plans: [all-reduce]
hosts: [2]
scaling: [{kind: max-batch, memory: 1 GiB}]
"""


def read(text: str = STUDY) -> Study:
    return validate(Study, parse_yaml(text, "s.yaml"), "s.yaml")


def searched(fits: int, memory: int, line: MemoryLine | None, *, fixed: int, each: int) -> list[Trial]:
    """Returns the trials of a search on a machine where a rank takes `fixed + each * micro_batch` bytes."""
    trials: list[Trial] = []
    while (batch := next_batch(trials, memory, line)) is not None:
        trials.append(Trial(batch, batch <= fits, fixed + each * batch if batch <= fits else None))
    return trials


@given(
    fits=st.integers(0, 300),
    factor=st.floats(0.2, 5),
    fixed=st.integers(0, 500 * MIB),
    each=st.integers(1 * MIB, 100 * MIB),
)
def test_a_search_takes_few_trials_and_tries_nothing_twice(
    fits: int, factor: float, fixed: int, each: int
) -> None:
    memory = fixed + each * fits + each // 2
    trials = searched(fits, memory, MemoryLine(fixed * factor, each * factor), fixed=fixed, each=each)
    assert 1 <= len(trials) <= MOST_TRIALS
    assert len({t.micro_batch for t in trials}) == len(trials)
    assert all(t.micro_batch >= 1 for t in trials)
    if (found := largest(trials)) is not None:
        assert found <= fits
    if len(trials) < MOST_TRIALS:
        assert (found or 0) == fits


@given(fits=st.integers(1, 300), error=st.floats(0.9, 1.1), each=st.integers(5 * MIB, 100 * MIB))
@example(fits=5, error=0.9, each=5 * MIB)  # the last trial has to fit
def test_a_prediction_that_errs_by_a_tenth_leads_close_to_the_largest_batch(
    fits: int, error: float, each: int
) -> None:
    fixed = 400 * MIB
    memory = fixed + each * fits + each // 2
    trials = searched(fits, memory, MemoryLine(fixed * error, each * error), fixed=fixed, each=each)
    found = largest(trials)
    assert found is not None
    assert found >= 0.7 * fits - 1
    if trials[0].fits:
        assert found >= 0.98 * fits - 1


def test_without_a_prediction_the_batch_doubles_and_is_then_halved() -> None:
    def batches(fits: int) -> list[int]:
        trials: list[Trial] = []
        while (batch := next_batch(trials, None, None)) is not None:
            trials.append(Trial(batch, batch <= fits))
        return [t.micro_batch for t in trials]

    assert batches(3) == [1, 2, 4, 3]
    assert batches(100) == [1, 2, 4, 8]
    assert batches(0) == [1]


def test_the_study_may_name_the_first_trial() -> None:
    assert next_batch([], GIB, MemoryLine(0, GIB // 8), start=6) == 6
    assert next_batch([], GIB, MemoryLine(0, GIB // 8)) == 8


def test_memory_is_predicted_from_the_engines_cost_model() -> None:
    (search,) = read().batch_searches()
    line = predicted_memory(search.at(1))
    assert line is not None
    # 12 bytes of weights, gradients and states for each of 3.7 million parameters, and libraries
    assert 200 * MIB < line.fixed_bytes < 600 * MIB
    # activations of 4 layers and logits of 2048 tokens for 128 positions
    assert 3 * MIB < line.sequence_bytes < 40 * MIB


def store_with(root: Path, fits: int, *, elsewhere: int | None = None) -> Store:
    """Returns a store in which the whole study was run on a machine where micro-batches up to `fits` fit.

    Args:
        elsewhere: largest micro-batch that fits over the second network, if it is another one.
    """
    study, store = read(), Store(root)
    with store.locked():
        store.save_study(study)
        while todo := [e for e in store.planned(study) if not store.is_finished(e)]:
            for experiment in todo:
                assert isinstance(experiment, Experiment)
                directory = store.begin(experiment)
                limit = elsewhere if elsewhere and "100m" in experiment.network.name else fits
                done = experiment.micro_batch <= limit
                if done:
                    (directory / "memory").mkdir()
                    for rank in range(experiment.ranks):
                        peak = PeakMemory(
                            rank=rank,
                            kind=MemoryKind.RESIDENT_SET,
                            since="process_start",
                            peak_bytes=400 * MIB + 12 * MIB * experiment.micro_batch,
                        )
                        (directory / "memory" / f"rank-{rank}.json").write_text(peak.model_dump_json())
                outcome = Outcome(status=Status.DONE if done else Status.OOM, seconds=1.0)
                store.publish(experiment, outcome, invented_breakdown(experiment) if done else None)
    return store


def test_trials_run_on_one_network_and_the_largest_batch_on_all(tmp_path: Path) -> None:
    store = store_with(tmp_path, 51)  # (1 GiB - 400 MiB) / 12 MiB = 52 by the measured peaks
    report = read_report(tmp_path)
    (row,) = largest_batches(report)
    assert (row.largest, row.smallest_oom, row.is_exact) == (51, 52, True)
    assert row.trials <= MOST_TRIALS
    assert row.memory_bytes == 1 << 30
    slow = [c for c in report.cells if c.network == "emulated-100m"]
    assert [c.scale.global_batch for c in slow] == [2 * 51]
    oom = [c for c in report.cells if c.text == "OOM"]
    assert {c.network for c in oom} == {"emulated-1g"}
    # Everything is known from the store alone.
    assert all(store.is_finished(e) for e in store.planned(read()))


def test_a_batch_at_the_limit_that_fails_elsewhere_is_replaced_by_the_next_smaller_one(tmp_path: Path) -> None:
    store = store_with(tmp_path, 51, elsewhere=50)
    (row,) = largest_batches(read_report(tmp_path))
    assert row.largest is not None
    assert row.largest < 51 == row.smallest_oom
    planned = store.planned(read())
    assert len({e.slug for e in planned}) == len(planned)
    assert all(store.is_finished(e) for e in planned)


def test_a_model_that_fits_with_no_batch_ends_the_search(tmp_path: Path) -> None:
    store_with(tmp_path, 0)
    (row,) = largest_batches(read_report(tmp_path))
    assert row.largest is None
    assert row.trials <= MOST_TRIALS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", memory: 1 GiB", "", "max-batch on processor cores needs the memory of a rank"),
        ("memory: 1 GiB", "memory: 1 GiB, global_batch: 8", "max-batch finds the global_batch itself"),
        ("memory: 1 GiB", "memory: 1 MiB", "a rank needs at least 64 MiB"),
        ("kind: max-batch", "kind: weak, micro_batch: 4", "memory belongs to max-batch"),
    ],
)
def test_bad_rules_are_refused(old: str, new: str, message: str) -> None:
    assert old in STUDY
    with pytest.raises(SpecError, match=message):
        read(STUDY.replace(old, new))


def test_the_memory_of_a_rank_survives_yaml() -> None:
    from wirecost.spec import to_yaml

    (search,) = read().batch_searches()
    experiment = search.at(8)
    again = validate(Experiment, parse_yaml(to_yaml(experiment), "e"), "e")
    assert again == experiment
    assert again.slug == experiment.slug
    assert read(to_yaml(read())) == read()
