"""Repeats run as complete blocks, each in its own random order, which is the same when a run is resumed."""

from __future__ import annotations

from support.results import STUDY
from wirecost.spec import Study, parse_yaml, validate
from wirecost.study.order import in_run_order


def study(more: str = "") -> Study:
    return validate(Study, parse_yaml(STUDY + more, "study"), "study")


def test_without_repeats_the_order_is_the_studys() -> None:
    once = study()
    assert in_run_order(once, once.experiments()) == once.experiments()


def test_every_experiment_runs_once_before_any_runs_again() -> None:
    thrice = study("repeats: 3\n")
    experiments = thrice.experiments()
    assert len(experiments) == 3 * len(study().experiments())
    assert len({e.slug for e in experiments}) == len(experiments)
    order = in_run_order(thrice, experiments)
    assert [e.repeat for e in order] == [1] * 16 + [2] * 16 + [3] * 16
    blocks = [[e.common_slug for e in order[start : start + 16]] for start in (0, 16, 32)]
    assert blocks[0] != blocks[1] != blocks[2]
    assert set(blocks[0]) == set(blocks[1]) == set(blocks[2])
    # Networks are mixed: no block runs all of one network first.
    for block in blocks:
        assert len({("100m" in name) for name in block[:8]}) == 2


def test_the_order_is_the_same_again_and_another_with_another_seed() -> None:
    first, again, other = study("repeats: 2\n"), study("repeats: 2\n"), study("repeats: 2\nseed: 2\n")
    slugs = [
        [e.common_slug.rpartition("_")[0] for e in in_run_order(s, s.experiments())] for s in (first, again, other)
    ]
    assert slugs[0] == slugs[1] != slugs[2]


def test_the_first_repeat_keeps_the_name_that_it_had_without_repeats() -> None:
    once, twice = study().experiments(), study("repeats: 2\n").experiments()
    assert [e.slug for e in twice if e.repeat == 1] == [e.slug for e in once]
    assert [e.slug for e in twice if e.repeat == 2] == [f"{e.slug}_r2" for e in once]
