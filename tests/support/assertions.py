"""Which tests can pass without having checked anything: none of their assertions runs, or only in a loop that may be
empty."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CHECKS = ("raises", "warns", "fail", "opcheck")
_KEEPS_LENGTH = ("enumerate", "sorted", "reversed", "list", "tuple", "set", "pairwise", "product", "cycle")


@dataclass(frozen=True)
class Weak:
    """A test that can pass without a check; `why` is "no assertion" or "only in loops that may be empty"."""

    path: Path
    line: int
    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.why}"


def weak_tests(root: Path) -> list[Weak]:
    """Returns the weak tests of all modules below `root`."""
    helpers: set[str] = set()
    for path in sorted((root / "support").rglob("*.py")):
        helpers |= _asserting(ast.parse(path.read_text()), helpers)
    found: list[Weak] = []
    for path in sorted(root.rglob("test_*.py")):
        found += weak_in(ast.parse(path.read_text()), path, helpers)
    return found


def weak_in(tree: ast.Module, path: Path = Path("test.py"), helpers: set[str] | None = None) -> list[Weak]:
    """Returns the weak tests of one module. `helpers` are functions of other modules that assert."""
    asserting = _asserting(tree, helpers or set())
    filled = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and _is_filled(node.value, set())
    }
    found = []
    for test in ast.walk(tree):
        if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test"):
            continue
        checks = list(_checks(test, asserting, filled | _filled_locals(test)))
        if not checks:
            found.append(Weak(path, test.lineno, test.name, "no assertion"))
        elif not any(checks):
            found.append(Weak(path, test.lineno, test.name, "only in loops that may be empty"))
    return found


def _asserting(tree: ast.Module, known: set[str]) -> set[str]:
    """Names of the functions that assert, themselves or through each other, with those `known` already."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    asserting = set(known)
    while True:
        more = {f.name for f in functions if f.name not in asserting and any(_checks(f, asserting, set()))}
        if not more:
            return asserting
        asserting |= more


def _filled_locals(test: ast.FunctionDef) -> set[str]:
    """Returns the names of local variables that hold a literal with elements."""
    return {
        node.targets[0].id
        for node in ast.walk(test)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_filled(node.value, set())
    }


def _checks(node: ast.AST, asserting: set[str], filled: set[str], *, certain: bool = True) -> Iterator[bool]:
    """Yields for each check below `node` whether loops can't prevent it from running."""
    for child in ast.iter_child_nodes(node):
        inner = certain
        if isinstance(child, ast.Assert):
            yield certain and not _all_of_maybe_nothing(child.test, filled)
        elif isinstance(child, ast.Call) and (
            _name(child.func) in _CHECKS
            or _name(child.func) in asserting
            or _name(child.func).startswith("assert")
        ):
            yield certain
        if isinstance(child, ast.For):
            inner = certain and _is_filled(child.iter, filled)
        elif isinstance(child, ast.While | ast.FunctionDef | ast.Lambda | ast.ExceptHandler):
            inner = False
        yield from _checks(child, asserting, filled, certain=inner)


def _all_of_maybe_nothing(test: ast.expr, filled: set[str]) -> bool:
    """Returns whether an assertion is only an all(...) over something that may be empty."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(_all_of_maybe_nothing(value, filled) for value in test.values)
    if not (isinstance(test, ast.Call) and _name(test.func) == "all" and test.args):
        return False
    argument = test.args[0]
    return isinstance(argument, ast.GeneratorExp | ast.ListComp) and not all(
        _is_filled(one.iter, filled) and not one.ifs for one in argument.generators
    )


def _is_filled(node: ast.expr, filled: set[str]) -> bool:
    """Returns whether the expression that a loop iterates over certainly has elements."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(
            not isinstance(element, ast.Starred) or _is_filled(element.value, filled) for element in node.elts
        )
    if isinstance(node, ast.Dict):
        return bool(node.keys)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Name):
        return node.id in filled
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name == "range" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return node.args[0].id in filled  # the name of a number that isn't 0
        if name == "range":
            return (
                len(node.args) < 3
                and all(isinstance(a, ast.Constant) for a in node.args)
                and bool(
                    range(*(a.value for a in node.args if isinstance(a, ast.Constant)))  # type: ignore[arg-type]
                )
            )
        if name == "zip":
            strict = any(
                k.arg == "strict" and isinstance(k.value, ast.Constant) and k.value.value for k in node.keywords
            )
            return (any if strict else all)(_is_filled(argument, filled) for argument in node.args)
        if name in ("items", "values", "keys") and isinstance(node.func, ast.Attribute):
            return _is_filled(node.func.value, filled)
        if name in ("split", "splitlines") and isinstance(node.func, ast.Attribute):
            return _is_filled(node.func.value, filled)
        if name in _KEEPS_LENGTH:
            return bool(node.args) and all(_is_filled(argument, filled) for argument in node.args)
    return False


def _name(function: ast.expr) -> str:
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )
