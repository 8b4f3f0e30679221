"""The command line of `wirecost plan`: formats and refusals."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from wirecost.cli import main

JOB = ("plan", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "16", "-B", "64")


def wirecost(*arguments: str) -> int:
    """Runs the command in this process and returns its exit code."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


@pytest.mark.parametrize("format", ["text", "csv", "markdown", "latex"])
def test_every_format_prints_the_plans(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert wirecost(*JOB, "--format", format) == 0
    printed = capsys.readouterr().out
    if format == "csv":
        rows = list(csv.DictReader(io.StringIO(printed)))
        assert [row["plan"] for row in rows] == [str(number) for number in range(1, 11)]
    else:
        assert "iteration" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--constraint", "tp<=x"), "tp is a whole number"),
        (("--constraint", "none.yaml"), "none.yaml: no such file"),
        (("--constraint", "tp=3"), "meets the constraints tp=3"),
        (("--emit", "keras"), "unknown framework 'keras'"),
        (("--explain", "1", "77"), "the list has plans 1 to 10"),
        (("--choose", "99", "--emit", "megatron"), "the list has plans 1 to 10"),
        (("--deadline", "3 days"), "needs the tokens of the run"),
        (("--tokens", "1B", "--budget", "10k"), "needs the price of a GPU"),
        (("--headroom", "200 %"), "no share of memory"),
        (("--out", "x"), "--out is for --measure"),
        (("--plan", "zero3-bf16"), "is complete"),
        (("--gpus", "12"), "does not fill whole nodes of 8"),
        (("--stack", "nope"), "unknown stack 'nope'"),
        (("--ep", "2"), "meets the constraints ep=2"),
        (("--html", "."), "no regular file"),
        (("--measure", "2", "--gpus", "1024", "-B", "1024"), "run the job on the cluster"),
    ],
)
def test_a_mistake_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wirecost(*JOB, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
