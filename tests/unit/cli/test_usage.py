"""What the option parser refuses is said in one line, with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.cli import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the only line with which a command line is refused."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    return line.removeprefix("wirecost: ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--steps", "0"],
            "no such option: --steps; it belongs behind its command, as in: wirecost run --steps (see wirecost -h)",
        ),
        (["--nothing"], "no such option: --nothing (see wirecost -h)"),
        (
            ["trace", "--steps", "0"],
            "no such option: --steps; did you mean --step-time? (see wirecost trace -h)",
        ),
        (["run", "--step", "5", "--", "a"], "no such option: --step; did you mean --steps? (see wirecost run -h)"),
        (["run", "--steps", "0", "--", "a"], "invalid value for '--steps': "),
        (["run", "--networks", "", "--", "python"], "run: networks[0]: unknown network ''; allowed: "),
        (["run"], "missing argument '-- COMMAND...' (see wirecost run -h)"),
        (["tracee", "a"], "no such command 'tracee'; did you mean 'trace'? (see wirecost -h)"),
        (["tra\nce"], "no such command "),
        (["study", "runn"], "no command runn; did you mean run? A study is run by: wirecost study run runn"),
        (["study", "mine.yaml"], "no command mine.yaml; a study is run by: wirecost study run mine.yaml"),
        (["bench", "--ranks-per-host", "x"], "invalid value for '--ranks-per-host': "),
        (["trace", "--out"], "option '--out' requires an argument"),
        (["report", "a", "b"], "got unexpected extra argument"),
        (["plan"], "missing argument 'workload' (see wirecost plan -h)"),
        (["data", "prepare", "a", "--out", "b"], "missing option '--tokenizer' (see wirecost data prepare -h)"),
        (
            ["report", ".", "--html", "/nowhere/page.html"],
            "--html /nowhere/page.html: there is no folder /nowhere",
        ),
        (
            ["run", "--", "python"],
            "job: workload 'job': 'python' has no script, so it would read standard input; ",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    arguments: list[str],
    line: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, *arguments).startswith(line)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["study"], ["data"]])
def test_a_group_without_a_command_prints_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert "Usage: wirecost" in printed.out + printed.err


def test_a_command_that_succeeds_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["presets", "link"], ["trace", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert capsys.readouterr().out
