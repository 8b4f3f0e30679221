from __future__ import annotations

from pathlib import Path

import pytest

from support.planning import answered
from wirecost.calibration.inputs.evaluate import predict_rows
from wirecost.calibration.inputs.rows import iteration_rows
from wirecost.calibration.inputs.table import read_table
from wirecost.planner.answer import Answer
from wirecost.planner.distinct import Distances
from wirecost.planner.measure import _can_win, write_table
from wirecost.planner.measured_plans import Measured, MeasuredPlans


@pytest.fixture(scope="module")
def answer() -> Answer:
    return answered("llama-3-8b", "dgx-a100-80gb", 16, 64, stacks=("engine-cuda",))


def test_measured_plans_are_a_table_that_predicts_them_as_the_search_did(answer: Answer, tmp_path: Path) -> None:
    measured = [
        Measured(r.place, r.choice.label, r.prediction.total_s, r.prediction.total_s, "done")
        for r in answer.ranked
    ]
    failed = Measured(0, "failed", 1.0, None, "failed")
    write_table(answer, [*measured, failed], tmp_path / "measured.csv")
    parsed = iteration_rows(read_table(tmp_path / "measured.csv"))
    assert not parsed.skipped
    assert len(parsed.rows) == len(measured)
    predicted, rows = predict_rows(parsed.rows)
    assert {row.key.stack for row in rows} == {"engine-cuda"}
    assert [not row.assumed for row in rows] == [True] * len(rows)
    for seconds, each in zip(predicted, measured, strict=True):
        # Tables have Megatron-Core's buckets, the engine DDP's.
        assert seconds == pytest.approx(each.predicted_s, rel=0.08)


def test_a_plan_that_is_predicted_far_slower_can_not_win(answer: Answer) -> None:
    slow = len(answer.found) - 1
    distances = Distances(answer.found, [0, 1, slow])
    predicted = [float(answer.found.total_s[place]) for place in (0, 1, slow)]
    result = MeasuredPlans(Path("out"), measured=[Measured(0, "first", predicted[0], 2 * predicted[0], "done")])
    assert _can_win(answer, result, distances, 1)
    assert predicted[2] > 3 * predicted[0]
    assert not _can_win(answer, result, distances, slow)


def test_nothing_is_left_out_before_anything_was_measured(answer: Answer) -> None:
    slow = len(answer.found) - 1
    failed = MeasuredPlans(Path("out"), measured=[Measured(0, "first", 1.0, None, "failed")])
    assert _can_win(answer, failed, Distances(answer.found, [0, slow]), slow)
    assert failed.best is None
    assert failed.rows()[0]["error"] is None
