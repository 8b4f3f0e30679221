"""Stragglers from tables of operations: a table by hand, and published answers."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from wirecost.errors import WirecostError
from wirecost.whatif.stragglers import stragglers

PUBLISHED = {
    "recorded_s": "step_t_base", "step_s": "step_t_nodelay", "ideal_s": "step_t_noblk",
    "by_step": "blocking_step_slowdown", "by_dp_rank": "blocking_decompose_by_dp_rank",
    "by_stage": "blocking_decompose_by_stage", "by_operation": "blocking_decompose_by_optype",
}  # fmt: skip


def rows(slow: float) -> list[dict[str, object]]:
    """Two data-parallel ranks of one stage: forward and backward of one micro-batch, reduce-scatter, optimizer."""
    found: list[dict[str, object]] = []
    for rank, factor in ((0, 1.0), (1, slow)):
        at = 0.0
        ends = 3.0 * slow + 0.5
        for kind, length in (
            ("params-all-gather", 0.25), ("forward-compute", factor), ("backward-compute", 2 * factor),
            ("gc", 0.0), ("layernorm-grads-all-reduce", 0.0), ("embedding-grads-all-reduce", 0.0),
            ("grads-reduce-scatter", 0.25), ("optimizer-clip-main-grad", 0.0), ("optimizer", 0.5),
        ):  # fmt: skip
            duration = ends - at if kind == "grads-reduce-scatter" else length
            found.append(
                {"dp_rank": rank, "stage": 0, "step": 3, "optype": kind, "start_ts": at, "duration": duration,
                 "seq_id": 0, "mc": 0, "gmc": 0}
            )  # fmt: skip
            at += duration
    return found


def test_a_rank_that_takes_twice_as_long_costs_half_of_it(tmp_path: Path) -> None:
    path = tmp_path / "job.parquet"
    pl.DataFrame(rows(2.0)).write_parquet(path)
    found = stragglers(path)
    # Recorded: 0.25 + 6 + 0.25 + 0.5; ideal: the mean of 3 and 6 s of computing.
    assert found.step_s[3] == pytest.approx(7.0)
    assert found.ideal_s[3] == pytest.approx(5.5)
    assert found.slowdown == pytest.approx(7.0 / 5.5)
    assert next(iter(found.by_dp_rank)) == 1
    assert found.by_dp_rank[1] == pytest.approx(7.0 / 5.5)


def test_a_table_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.parquet"
    pl.DataFrame(rows(1.0)[:-1]).write_parquet(path)
    with pytest.raises(WirecostError, match="keep those that are whole"):
        stragglers(path)
    pl.DataFrame({"step": [1]}).write_parquet(path)
    with pytest.raises(WirecostError, match="missing: dp_rank"):
        stragglers(path)
    path.write_bytes(b"no parquet at all")
    with pytest.raises(WirecostError, match="can't be read as Parquet"):
        stragglers(path)


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", ["ST", "AR"])
def test_published_jobs_agree_to_a_millionth(shared: Path, name: str) -> None:
    folder = shared / "reference" / "stragglers"
    found = stragglers(folder / f"trace-{name}.parquet")
    published = json.loads((folder / f"result-{name}.json").read_text())
    assert found.slowdown == pytest.approx(published["blocking_slowdown"], rel=1e-6)
    for ours, theirs in PUBLISHED.items():
        values = {str(key): value for key, value in getattr(found, ours).items()}
        assert values == pytest.approx(published[theirs], rel=1e-6), ours
