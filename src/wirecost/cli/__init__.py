"""The command line: parses and prints, nothing else. Every command is one call into a room.

A command lives in its own module here and imports what it calls inside its function, so that
`wirecost --help` stays fast.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import click
import typer

from wirecost._version import __version__
from wirecost.errors import WirecostError

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
    from wirecost.cli import model

    model.register(app)


_register()


def main(argv: list[str] | None = None) -> None:
    """Runs the command line. Exit codes: 0 done, 1 ran and failed, 2 refused (one line says why), 130 Ctrl-C."""
    try:
        app(args=argv, prog_name="wirecost")
    except WirecostError as error:
        click.echo(f"wirecost: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("wirecost: interrupted", err=True)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of our output went away (`wirecost ... | head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
