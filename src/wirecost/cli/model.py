"""The cost model's commands."""

from __future__ import annotations

import typer

from wirecost.cli.validate import validate


def register(app: typer.Typer) -> None:
    app.command()(validate)
