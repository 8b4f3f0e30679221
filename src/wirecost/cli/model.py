"""The cost model's commands."""

from __future__ import annotations

import typer

from wirecost.cli.calibrate import calibrate
from wirecost.cli.need import need
from wirecost.cli.predict import predict
from wirecost.cli.project import project
from wirecost.cli.validate import validate


def register(app: typer.Typer) -> None:
    for command in (predict, project, need, calibrate, validate):
        app.command()(command)
