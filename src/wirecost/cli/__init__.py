"""The command line: parses and prints, nothing else. Every command is one call into a room.

A command lives in its own module here and imports what it calls inside its function, so that
`wirecost --help` stays fast.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Annotated

# Pydantic, which typer imports, looks through every installed package for plugins; none is used here.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import typer

from wirecost._version import __version__
from wirecost.errors import WirecostError
from wirecost.text import printable

app = typer.Typer(
    name="wirecost",
    help="What the network costs in large language model training: measured, read from traces, predicted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wirecost {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _register() -> None:
    """Adds every command. Order here is order in the help."""
    from wirecost.cli import (
        bench,
        compare,
        demo,
        doctor,
        model,
        monitor,
        presets,
        report,
        study,
        trace,
        transport,
    )

    app.command("demo")(demo.demo)
    app.add_typer(study.app, name="study")
    app.command("report")(report.report)
    app.command("trace")(trace.trace)
    app.command("bench")(bench.bench)
    model.register(app)
    app.command("transport")(transport.transport)
    app.command("monitor", context_settings={"allow_interspersed_args": False})(monitor.monitor)
    app.command("doctor")(doctor.doctor)
    app.command("compare")(compare.compare)
    app.command("presets")(presets.presets)


_register()


def main(argv: list[str] | None = None) -> None:
    """Runs the command line. Exit codes: 0 done, 1 ran and failed, 2 refused (one line says why), 130 Ctrl-C."""
    try:
        app(args=argv, prog_name="wirecost")
    except WirecostError as error:
        typer.echo(f"wirecost: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        typer.echo(f"wirecost: can't write the output: {error.strerror}", err=True)
        sys.exit(1)
    except SystemExit as ending:
        # The library turns Ctrl-C into a silent exit code.
        if ending.code == 128 + signal.SIGINT:
            typer.echo("wirecost: interrupted", err=True)
        raise
