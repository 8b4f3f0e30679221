"""The command line in one way: options, formats, help and widths mean the same in every command."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from wirecost.cli import _bench_output, application, main
from wirecost.cli.former import FORMER, with_present_names
from wirecost.cli.output import FORMATS
from wirecost.collectives.bench import run_bench
from wirecost.collectives.request import BenchRequest
from wirecost.collectives.result import BenchNetwork, Row

PREDICT = ["predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64"]
TABLES = [
    PREDICT,
    [*PREDICT, "--sweep", "gpus=8..64"],
    ["doctor"],
    ["bench", "all_reduce", "-b", "1K", "-e", "2K", "-f", "2", "-n", "2"],
    ["need", "llama-3-70b", "--cluster", "dgx-h100", "--gpus", "64", "--fraction", "0.4", "--tp", "8"],
]


def commands() -> Iterator[tuple[str, Any]]:
    def walk(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, command in getattr(group, "commands", {}).items():
            yield " ".join((*path, name)), command
            yield from walk(command, (*path, name))

    root = typer.main.get_command(application())
    yield "wirecost", root
    yield from walk(root, ())


@pytest.fixture(scope="module", autouse=True)
def one_benchmark() -> Iterator[None]:
    """Every table of `wirecost bench` shows the same measurement, which is made once."""
    measured: list[tuple[BenchRequest, tuple[BenchNetwork, list[Row]]]] = []

    def again(
        request: BenchRequest, on_start: Callable[[BenchNetwork], None], on_row: Callable[[Row], None]
    ) -> tuple[BenchNetwork, list[Row]]:
        if not measured:
            measured.append((request, run_bench(request)))
        first, (network, rows) = measured[0]
        assert request == first
        on_start(network)
        for row in rows:
            on_row(row)
        return network, rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bench_output, "run_bench", again)
        yield


def run(*arguments: str, columns: int | None = None) -> str:
    env = {"COLUMNS": None if columns is None else str(columns)}
    result = CliRunner().invoke(application(), list(arguments), env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_short_option_means_one_thing() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for _, command in commands():
        for parameter in command.params:
            for option in getattr(parameter, "opts", ()):
                if len(option) == 2:
                    meanings[option].add(parameter.name)
    assert len(meanings) > 10
    assert {option: names for option, names in meanings.items() if len(names) > 1} == {}


def test_every_option_and_command_says_what_it_is() -> None:
    silent = [
        f"{path} {parameter.opts[0]}"
        for path, command in commands()
        for parameter in command.params
        if not getattr(parameter, "help", None) and not getattr(parameter, "hidden", False)
    ]
    assert silent == []
    assert [path for path, command in commands() if not command.help] == []


def test_summaries_are_whole_at_80_columns() -> None:
    text = run("--help", columns=80)
    assert "..." not in text.split("Commands:")[1]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("arguments", TABLES, ids=" ".join)
def test_every_format_of_a_table(arguments: list[str]) -> None:
    outputs = {format: run(*arguments, "--format", format) for format in FORMATS}
    assert json.loads(outputs["json"])
    rows = list(csv.reader(io.StringIO(outputs["csv"])))
    assert len(rows) > 1
    assert len({len(row) for row in rows}) == 1
    assert "| :--- |" in outputs["markdown"]
    assert outputs["latex"].count(r"\begin{tabular}") == outputs["latex"].count(r"\end{tabular}") > 0
    assert "%" not in outputs["latex"].replace(r"\%", "")


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("arguments", TABLES, ids=" ".join)
def test_tables_fit_the_width_that_is_asked_for(arguments: list[str], columns: int) -> None:
    lines = run(*arguments, columns=columns).splitlines()
    drawn = [line for line in lines if "─" in line]
    assert max(map(len, drawn), default=0) <= columns
    assert len(drawn) > 0 or arguments[0] not in ("predict",)


def test_another_format_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([*PREDICT, "--format", "html"])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert "unknown format 'html'; allowed: csv, json, latex, markdown, text" in error
    assert error.count("\n") == 1


def test_former_options_are_taken_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="-n of `wirecost predict` is deprecated: write --gpus"):
        assert with_present_names(["predict", "x", "-n64", "-B", "8"]) == [
            "predict",
            "x",
            "--gpus",
            "64",
            "-B",
            "8",
        ]
    with pytest.warns(FutureWarning):
        assert with_present_names(["trace", "x", "--output=y"]) == ["trace", "x", "--out=y"]
    assert with_present_names(["bench", "-n", "3", "-b", "8"]) == ["bench", "-n", "3", "-b", "8"]
    assert with_present_names(["need", "x", "--of", "-1"]) == ["need", "x", "--of", "-1"]
    known = {path: {o for p in command.params for o in getattr(p, "opts", ())} for path, command in commands()}
    for command, options in FORMER.items():
        assert set(options.values()) <= known[command], command
    assert FORMER


def test_what_was_assumed_is_printed() -> None:
    assert "data parallel zero3" in run(*PREDICT)
    assert "data parallel" not in run(*PREDICT, "--data-parallel", "zero3").split("Assumed")[1]
    assert "stack fsdp-flash" in run(*PREDICT)
