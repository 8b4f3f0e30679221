"""Console examples in the documentation.

A block that begins with ```console is run by a test, all blocks of a page in order and in one directory. An HTML
comment on the line above it says what is special:

    <!-- not run: REASON -->   it isn't run
    <!-- compare -->           its output is compared with the one shown; a line of `...` stands for any lines

A ```python block below `<!-- run -->` is run, and its output is compared with the block that follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MARK = re.compile(r"<!-- (?:(compare)|not run: (.+)) -->")


@dataclass
class Command:
    """A command and the output that the page shows for it."""

    text: str
    output: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A console block. `reason` says why it isn't run."""

    page: Path
    line: int
    commands: list[Command]
    compare: bool
    reason: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Returns README.md, CONTRIBUTING.md and every page of docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Returns the console blocks of a page."""
    result: list[Block] = []
    before, block = "", None
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        if block is not None:
            if line.startswith("```"):
                block = None
            else:
                _add(block, line)
        elif line.startswith("```console"):
            mark = _MARK.fullmatch(before.strip())
            block = Block(page, number, [], bool(mark and mark[1]), mark[2] if mark else None)
            result.append(block)
        before = line
    return result


def _add(block: Block, line: str) -> None:
    if line.startswith("$ "):
        block.commands.append(Command(line[2:]))
    elif block.commands and block.commands[-1].text.endswith("\\"):
        command = block.commands[-1]
        command.text = f"{command.text}\n{line}"
    elif block.commands and not line.lstrip().startswith("#"):
        block.commands[-1].output.append(line)


def yaml_files(page: Path) -> dict[str, str]:
    """Returns the YAML blocks of a page that come with a file name: `as \\`NAME.yaml\\`` in the text before, or a
    first line `# NAME.yaml`."""
    result: dict[str, str] = {}
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```yaml\n(.*?)^```", text, re.M | re.S):
        comment = re.match(r"# (\S+\.yaml)\n", match[1])
        named = re.findall(r"`([\w.-]+\.yaml)`", text[: match.start()][-400:])
        if comment or named:
            result[comment[1] if comment else named[-1]] = match[1]
    return result


def fits(shown: list[str], printed: str) -> bool:
    """Returns whether printed output matches the shown one.

    A line of `...` stands for any text. Line breaks, the widths of columns and the lengths of rules may differ.
    """
    parts = "\n".join(["", *shown, ""]).split("\n...\n")
    pattern = r".*?".join(re.escape(_plain(part)) for part in parts)
    return re.fullmatch(pattern, _plain(printed), re.S) is not None


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", re.sub(r"─+", "─", text))


def may_fail(command: Command) -> bool:
    """Returns whether the page shows that the command is refused or fails."""
    return any(line.startswith("wirecost: ") for line in command.output) or "|| exit" in command.text


def python_examples(page: Path) -> list[tuple[str, list[str]]]:
    """Returns the Python blocks of a page that are run, each with the lines of output that the page shows for it."""
    text = page.read_text(encoding="utf-8")
    pattern = r"<!-- run -->\n```python\n(.*?)```\n\n```\n(.*?)```\n"
    examples = [(match[1], match[2].splitlines()) for match in re.finditer(pattern, text, re.S)]
    assert len(examples) == text.count("<!-- run -->"), f"{page}: a Python block to run has no output"
    return examples
