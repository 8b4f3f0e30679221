"""Console examples of the documentation run, or say why they don't."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support import doc_inputs
from support.commands import wirecost_here
from support.doc_examples import (
    ROOT,
    Block,
    Command,
    blocks,
    fits,
    may_fail,
    pages,
    python_examples,
    yaml_files,
)

RUN = {page: [b for b in blocks(page) if b.reason is None] for page in pages()}
CALCULATE = (
    "predict",
    "need",
    "plan",
    "calibrate",
    "validate",
    "trace",
    "whatif",
    "compare",
    "transport",
    "presets",
)
"""Commands that only read files and calculate. Without a process for each, their examples take a fourth of the time."""
WITH_EXAMPLES = [page for page, run in RUN.items() if run]


def environment(home: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "WIRECOST_"))}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    changes = {"PATH": path, "COLUMNS": "100", "HOME": str(home), "LC_ALL": "C.UTF-8"}
    source = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    return inherited | changes | {"PYTHONPATH": source}


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=[str(p.relative_to(ROOT)) for p in WITH_EXAMPLES])
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    doc_inputs.prepare(folder, yaml_files(page), "\n".join(c.text for b in RUN[page] for c in b.commands))
    assert RUN[page]
    for block in RUN[page]:
        run(block, folder)


def run(block: Block, folder: Path) -> None:
    assert block.commands, f"{block.place}: a console block needs a line that begins with '$ '"
    for command in block.commands:
        arguments = needs_no_process(command)
        code, printed = here(arguments, folder) if arguments else in_a_shell(command, folder)
        allowed = {0, 1, 2} if may_fail(command) else {0}
        assert code in allowed, f"{block.place}: {command.text}\n{printed}"
        if block.compare:
            assert fits(command.output, printed), f"{block.place}: {command.text} prints\n{printed}"


def needs_no_process(command: Command) -> list[str] | None:
    """Returns the arguments of a command of wirecost that only calculates, and that a shell would pass on as they are;
    None for any other."""
    try:
        program, *arguments = shlex.split(command.text, comments=True)
    except ValueError:
        return None
    outside_quotes = re.sub(r"'[^']*'|#.*", "", command.text)
    if program != "wirecost" or re.search(r'[|<>&;$`~*?"(]', outside_quotes):
        return None
    return arguments if arguments[0] in CALCULATE else None


def here(arguments: list[str], folder: Path) -> tuple[int, str]:
    wanted = environment(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name, value in wanted.items():
            patch.setenv(name, value)
        done = wirecost_here(*arguments, cwd=folder, together=True)
    return done.returncode, done.stdout


def in_a_shell(command: Command, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


PYTHON = [(page, code, shown) for page in pages() for code, shown in python_examples(page)]


@pytest.mark.parametrize(
    ("page", "code", "shown"), PYTHON, ids=[f"{p.stem}-{n}" for n, (p, _, _) in enumerate(PYTHON)]
)
def test_python_examples_run(page: Path, code: str, shown: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    doc_inputs.prepare(folder, {}, code)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"
    assert fits(shown, done.stdout), f"{page} prints\n{done.stdout}"


def test_every_block_runs_or_says_why_not() -> None:
    checked = 0
    for page in pages():
        for block in blocks(page):
            assert block.commands, f"{block.place}: no command"
            assert block.reason is None or len(block.reason.split()) >= 2, f"{block.place}: needs a reason"
            checked += 1
    assert checked > 40


def test_no_mark_stands_elsewhere() -> None:
    marks = 0
    for page in pages():
        lines = page.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if re.match(r"<!-- (compare|not run)", line):
                marks += 1
                assert lines[number].startswith("```console"), f"{page}:{number}: no console block follows"
    assert marks > 20
