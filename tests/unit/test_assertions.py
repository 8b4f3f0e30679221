"""No test passes without having checked something, and the check that holds this is right itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support.assertions import weak_in, weak_tests

ROOT = Path(__file__).resolve().parents[1]


def test_every_test_asserts_outside_of_loops_that_may_be_empty() -> None:
    assert len(list(ROOT.rglob("test_*.py"))) > 100
    assert [str(weak) for weak in weak_tests(ROOT)] == []


@pytest.mark.parametrize(
    ("body", "weak"),
    [
        ("pass", True),
        ("x = f()", True),
        ("assert f()", False),
        ("for x in f():\n  assert x", True),
        ("for x in f():\n  assert x\nassert n", False),
        ("for x in (1, 2):\n  assert x", False),
        ("for x in ():\n  assert x", True),
        ("for x in range(3):\n  assert x", False),
        ("for x in range(n):\n  assert x", True),
        ("for x in range(COUNT):\n  assert x", False),
        ("xs = [1, 2]\nfor x in xs:\n  assert x", False),
        ("for x, y in zip([1], f(), strict=True):\n  assert x", False),
        ("for x, y in zip([1], f()):\n  assert x", True),
        ("while f():\n  assert x", True),
        ("assert all(x for x in f())", True),
        ("assert all(x for x in f()) and all(y for y in g())", True),
        ("assert all(x for x in (1, 2))", False),
        ("assert all(f())", False),
        ("assert any(x for x in f())", False),
        ("with pytest.raises(E):\n  f()", False),
        ("for x in f():\n  with pytest.raises(E):\n    g(x)", True),
        ("np.testing.assert_array_equal(a, b)", False),
        ("try:\n  f()\nexcept E:\n  assert True", True),
        ("def inner():\n  assert f()\nrun(inner)", True),
        ("helper(f())", False),
        ("outer(f())", False),
        ("for x in f():\n  helper(x)", True),
        ("for x in CASES:\n  assert x", False),
    ],
)
def test_the_rule(body: str, weak: bool) -> None:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    module = f"CASES = [1]\nCOUNT = 9\ndef helper(x):\n  assert x\ndef outer(x):\n  helper(x)\ndef test_it():\n{lines}\n"
    assert bool(weak_in(ast.parse(module))) is weak
