"""Every code is registered, documented and raised, and no other one is raised."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wirecost
from wirecost.diagnostics import KINDS, Area, Diagnostic, Severity, diagnostic, legacy_warnings, lines_of
from wirecost.diagnostics.page import page

SOURCE = Path(wirecost.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "diagnostics.md"
RAISING = {"diagnostic", "add", "_lost"}
"""Functions whose first argument is a code: `diagnostic`, `DiagnosticCounts.add` and `lost_time._lost` of traces."""


def literals(node: ast.expr) -> Iterator[str]:
    """The strings that an expression can be, of those that stand in it."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from literals(body)
            yield from literals(orelse)


def raised(path: Path) -> Iterator[str]:
    """The codes that a file raises: first arguments, and values of a dictionary named CODES."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if name in RAISING:
                if isinstance(node.func, ast.Name) or "diagnostics" in ast.unparse(node.func).lower():
                    yield from literals(first)
            case ast.Assign(targets=[ast.Name(id="CODES")], value=ast.Dict(values=values)):
                for value in values:
                    yield from literals(value)


@functools.cache
def codes() -> dict[str, Path]:
    """The codes that are raised, each with a file that raises it."""
    return {code: path for path in sorted(SOURCE.rglob("*.py")) for code in raised(path)}


def test_codes_that_are_raised_are_registered() -> None:
    assert len(codes()) > 100
    assert {code: path.name for code, path in codes().items() if code not in KINDS} == {}


def test_codes_that_are_registered_are_raised() -> None:
    assert set(KINDS) - set(codes()) == set()


def test_messages_of_traces_are_clauses_without_advice() -> None:
    listed = [kind for kind in KINDS.values() if kind.area is Area.TRACES]
    assert len(listed) > 50
    for kind in listed:
        assert not kind.message.endswith(".") and "`" not in kind.message and "\n" not in kind.message
        assert "--" not in kind.message, kind.code
        assert kind.severity is Severity.WARNING or not kind.loses_data
    assert KINDS["graphs_opaque"].message.startswith("CUDA graph launches")
    assert KINDS["broken_event"].message == "events are not valid JSON; they are left out"
    assert KINDS["bare_gpu_step"].remedy == "take the CPU steps with --window cpu"


def test_the_page_is_what_the_registry_makes() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "wirecost.diagnostics"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert made == page()
    assert PAGE.read_text() == made, "run: python -m wirecost.diagnostics > docs/reference/diagnostics.md"


def test_every_code_is_documented_once() -> None:
    documented = re.findall(r"^### (\w+)$", PAGE.read_text(), re.M)
    assert sorted(documented) == sorted(KINDS)


@pytest.mark.parametrize("code", sorted(KINDS))
def test_kinds_are_plain_sentences(code: str) -> None:
    kind = KINDS[code]
    assert kind.code == code
    assert Diagnostic(code, kind.severity, "m").code == code
    assert kind.meaning.endswith(".") and "\n" not in kind.meaning
    assert kind.remedy is None or (kind.remedy and not kind.remedy.endswith("."))
    if kind.severity is Severity.OK:
        assert kind.remedy is None


def test_every_area_has_codes() -> None:
    assert {kind.area for kind in KINDS.values()} == set(Area)


def test_severity_and_remedy_are_the_registrys_unless_stated() -> None:
    kind = KINDS["busy_machine"]
    usual = diagnostic("busy_machine", "m")
    assert (usual.severity, usual.remedy) == (kind.severity, kind.remedy)
    stated = diagnostic("busy_machine", "m", severity=Severity.ERROR, remedy="r", subject="s", count=2)
    assert stated == Diagnostic("busy_machine", Severity.ERROR, "m", "r", "s", 2)


def test_an_unregistered_code_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such_code"):
        diagnostic("no_such_code", "m")


@pytest.mark.parametrize("code", ["", "A", "a-b", "1a", "a\n", "ä"])
def test_a_malformed_code_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match="code"):
        Diagnostic(code, Severity.INFO, "m")


def test_severities_are_ordered() -> None:
    order = [Severity.OK, Severity.INFO, Severity.WARNING, Severity.ERROR]
    assert list(Severity) == order
    assert [[a.is_at_least(b) for b in order] for a in order] == [[m <= n for m in range(4)] for n in range(4)]


def test_lines_are_safe_to_print() -> None:
    told = diagnostic("busy_machine", "a\x1b[31m\nb", remedy="c\rd", subject="rank\u202e3")
    assert lines_of(told) == ["warning busy_machine: rank\\u202e3: a\\x1b[31m\\x0ab", "-> c\\x0dd"]
    assert lines_of(diagnostic("nic_up", "eth0")) == ["ok nic_up: eth0"]


def test_plain_data_has_the_four_keys_and_what_is_set() -> None:
    assert set(diagnostic("nic_up", "m").as_json()) == {"code", "severity", "message", "remedy"}
    full = diagnostic("nic_up", "m", subject="eth0", count=0)
    assert full.as_json() == {
        "code": "nic_up", "severity": "ok", "message": "m", "remedy": None, "subject": "eth0", "count": 0,
    }  # fmt: skip
    assert legacy_warnings([diagnostic("nic_up", "m", remedy="r", subject="s")]) == [
        {"code": "nic_up", "message": "s: m; r"}
    ]


def test_the_package_loads_no_library() -> None:
    code = "import sys; import wirecost.diagnostics; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "wirecost" in loaded.stdout
    for library in ("pydantic", "msgspec", "numpy", "polars", "rich", "yaml"):
        assert f"'{library}'" not in loaded.stdout
