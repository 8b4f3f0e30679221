"""Stragglers from tables of operations."""

from __future__ import annotations

from pathlib import Path


def is_table(path: Path) -> bool:
    """Returns whether a path is a Parquet table of operations."""
    return path.suffix.lower() == ".parquet"
