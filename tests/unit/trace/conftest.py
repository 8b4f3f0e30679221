from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wirecost.trace.file import read_file
from wirecost.trace.rank import Options, RankTrace

Read = Callable[..., RankTrace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads one rank from the bytes of a trace."""

    def one(text: bytes, name: str = "rank0.json", **options: object) -> RankTrace:
        path = tmp_path / name
        path.write_bytes(text)
        (trace,) = read_file(path, Options(**options))  # pyright: ignore[reportArgumentType]
        return trace

    return one
