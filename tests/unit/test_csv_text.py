"""CSV that wirecost writes: harmless in a terminal and in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.tracefiles import make_job
from wirecost.csv_text import rows_to_csv, spreadsheet_cell
from wirecost.trace import read
from wirecost.trace.tables import NAMES, write_tables

STARTS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


@given(st.text())
def test_no_text_is_a_formula_or_a_command(text: str) -> None:
    cell = spreadsheet_cell(text)
    assert not cell.startswith(tuple(STARTS))
    assert not any(unicodedata.category(character).startswith("C") for character in cell)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\\x09=1"),
        ("\r=1", "\\x0d=1"),
        (" =1", "' =1"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("gpt-tiny", "gpt-tiny"),
        ("", ""),
    ],
)
def test_a_cell_is_shown_as_it_is_or_marked_as_text(text: str, cell: str) -> None:
    assert spreadsheet_cell(text) == cell


def test_numbers_stay_numbers() -> None:
    rows = [
        {"name": "-x", "ms": -1.5, "count": -3, "ok": True},
        {"name": None, "ms": None, "count": 4, "ok": False},
    ]
    assert rows_to_csv(["name", "ms", "count", "ok"], rows) == "name,ms,count,ok\n'-x,-1.5,-3,true\n,,4,false\n"


def test_the_tables_of_a_hostile_trace_hold_no_formula_and_no_escape(tmp_path: Path) -> None:
    trace = json.loads(make_job(1, 2, seed=3, kernels=2, layout="compact")[0].text)
    for event in trace["traceEvents"]:
        arguments = event.get("args", {})
        if "Process Group Name" in arguments:
            arguments["Process Group Name"] = "=cmd|'/C calc'!A0\x1b]0;x\x07"
    trace["traceEvents"][0]["cat"] = "\x1b[31m=1"
    folder = tmp_path / "=rank0"
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(trace))
    paths = write_tables(read(folder), tmp_path / "out", "csv")
    assert len(paths) == len(NAMES)
    text = "".join(path.read_text() for path in paths)
    assert "calc" in text and "\x1b" not in text and "\x07" not in text
    cells = [cell for path in paths for line in csv.reader(io.StringIO(path.read_text())) for cell in line]
    assert len(cells) > 100
    assert [c for c in cells if c[:1] in tuple("=+@\t\r") or (c[:1] == "-" and not c[1:2].isdigit())] == []
