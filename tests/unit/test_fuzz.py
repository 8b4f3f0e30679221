"""Damaged inputs of every kind through the command line: an answer, or one line that refuses them.

`benchmarks/fuzz.py` runs more of them, and a single one again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support.fuzzing.kinds import KINDS, prepare
from support.fuzzing.oracle import run
from support.fuzzing.seed import COUNT, FIRST


@pytest.mark.parametrize("kind", KINDS)
def test_any_damaged_input_ends_in_an_answer_or_one_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirecost.report import chart_files, collective_figure, figures

    # Drawing takes a second each and never sees the input.
    for module in (chart_files, collective_figure, figures):
        monkeypatch.setattr(module, "render", lambda jobs: [b"" for _ in jobs])
    codes: Counter[int] = Counter()
    for seed in range(FIRST, FIRST + COUNT):
        argv = prepare(kind, seed, tmp_path / "input")
        ending = run(argv)
        again = f"again: python benchmarks/fuzz.py --kind {kind} --seed {seed} --count 1"
        assert ending.fault is None, f"{' '.join(argv)}\n{ending.fault}\n{again}"
        codes[ending.code] += 1
    assert sum(codes.values()) == COUNT
    # Neither are all inputs refused, which would test little, nor none.
    assert COUNT < 50 or len(codes) > 1, codes


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_is_the_same_whenever_it_is_made(kind: str, tmp_path: Path) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        argv = prepare(kind, 7, folder)
        files = {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        made.append(([part.replace(str(folder), "") for part in argv], files))
    assert made[0][1]
    assert made[0][0] == made[1][0]
    same = [name for name in made[0][1] if made[0][1][name] == made[1][1][name]]
    # Some files hold the time when they were made.
    assert same


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("raise ValueError('x')", "ValueError"),
        ("print('12 nan %')", "'nan'"),
        ("print('\\x1b[31m')", "x1b"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import sys; print('a\\nb', file=sys.stderr); sys.exit(2)", "one line"),
        ("import numpy; numpy.float64(1) / numpy.float64(0)", "RuntimeWarning"),
        ("print('fine')", None),
    ],
)
def test_the_judge_sees_what_it_should(code: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirecost.cli.main", lambda argv: exec(code, {}))
    found = run(["trace"]).fault
    assert (found is None) if fault is None else (found is not None and fault in found)
