"""Every number of a table lies in its column's domain, or its row is left out with the reason."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fuzzing.kinds import BENCHMARK, FRACTIONS, MEASURED
from wirecost.calibration.inputs.columns import COUNTS, QUANTITIES, CannotExpressError, number
from wirecost.prediction.table_validation import validate_table

KINDS = {"measured": MEASURED, "fractions": FRACTIONS, "benchmark": BENCHMARK}


@pytest.mark.parametrize("key", [*COUNTS, *QUANTITIES])
@pytest.mark.parametrize("text", ["-1", "1e300", "nan", "inf", "-inf", "1e-300", "1e400", "x", "9" * 5000])
def test_what_no_column_can_hold_is_refused(key: str, text: str) -> None:
    if key == "comm_fraction" and text == "1e-300":
        assert number({key: text}, key) == 1e-300
        return
    with pytest.raises(CannotExpressError, match=key) as refusal:
        number({key: text}, key)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("key", COUNTS)
def test_counts_are_whole(key: str) -> None:
    low, high = COUNTS[key]
    assert [number({key: str(n)}, key) for n in (low, high)] == [low, high]
    assert number({key: " "}, key) is None
    for text in ("0", "1.5", "0.0001", str(high + 1) if high < 2**53 else str(2 * high)):
        with pytest.raises(CannotExpressError, match="expected a whole number from"):
            number({key: text}, key)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_table_gives_a_number_that_is_none(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = KINDS[kind]
    keys = sorted(set(base) & {*COUNTS, *QUANTITIES})
    hostile = st.sampled_from(["0", "1", "3", "0.0001", "1e5", "1e9", "1e18", "1e-5", "nan", "7"])
    changes = data.draw(st.dictionaries(st.sampled_from(keys), hostile, min_size=1, max_size=4))
    path: Path = tmp_path_factory.getbasetemp() / f"{kind}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(base))
        writer.writeheader()
        writer.writerow({**base, **changes})
    result = validate_table(path)
    assert len(result.rows) + len(result.skipped) == 1
    shown = [v for row in result.rows for v in (row.predicted, row.error, row.low, row.high) if v is not None]
    assert [v for v in shown if not math.isfinite(v)] == []


@pytest.mark.needs_shared
def test_the_tables_that_broke(shared: Path) -> None:
    folder = shared / "cases" / "reliability" / "05-csv"
    one, several = validate_table(folder / "one.csv"), validate_table(folder / "x.csv")
    assert one.rows == []
    assert [s["reason"] for s in one.skipped] == [
        "gpus_per_node is 0.0001, which can't be: expected a whole number from 1 to 1024"
    ]
    assert len(several.rows) == 7 and len(several.skipped) == 1
