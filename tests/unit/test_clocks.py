"""Durations come from clocks that nobody can set: a jump of the wall clock in a run changes no result."""

from __future__ import annotations

import ast
from pathlib import Path

import wirecost

WALL_CLOCK = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}
ALLOWED = {
    "counters/sampler.py",  # rows carry Unix time beside the monotonic one, for those who join them with other logs
    "launch/isolate.py",  # compared with the age of files
    "launch/ranks.py",  # compared with the age of files
    "study/allocation.py",  # Slurm gives the end of a job as Unix time; it is read once
    "study/environment.py",  # when an experiment was run
    "study/run_record.py",  # when a run began, for people
    "study/state.py",  # compared with the age of files
}


def test_the_wall_clock_is_read_only_where_a_date_is_wanted() -> None:
    root = Path(wirecost.__file__).parent
    readers = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                if (owner, node.attr) in WALL_CLOCK:
                    readers.add(str(path.relative_to(root)))
    assert readers == ALLOWED
