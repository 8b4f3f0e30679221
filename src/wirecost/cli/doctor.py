"""`wirecost doctor`: what this machine offers a job's network."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wirecost.doctor import Diagnosis


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def doctor(
    output: Annotated[_Format, typer.Option("--format", help="How to print the answer.")] = _Format.TEXT,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there is a warning or an error.")
    ] = False,
) -> None:
    """Say which transport NCCL would use on this machine.

    Looked at are GPUs, NICs, RDMA devices, GPUDirect, container limits and emulation. The answer says what stands
    in the way of a better transport, and the remedy."""
    from wirecost.diagnostics import Severity
    from wirecost.doctor import diagnose

    diagnosis = diagnose()
    if output is _Format.JSON:
        typer.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        _print(diagnosis)
    if strict and diagnosis.at_least(Severity.WARNING):
        raise typer.Exit(1)


def _print(diagnosis: Diagnosis) -> None:
    from rich.console import Console
    from rich.text import Text

    from wirecost.cli.output import print_diagnostics

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else 200, soft_wrap=not terminal)

    def line(*parts: tuple[str, str]) -> None:
        text = Text()
        for words, style in parts:
            text.append("".join(c if c.isprintable() else "?" for c in words), style)
        console.print(text)

    c = diagnosis.choice
    line(("Between hosts NCCL would use: ", "bold"), (c.between_hosts.value, "bold"), (f" ({c.between_why})", ""))
    if c.inside_host is not None:
        line(("Inside this host: ", "bold"), (c.inside_host.value, "bold"), (f" ({c.inside_why})", ""))
    line(("The log of a run proves it: wirecost transport LOG", "dim"))
    console.print()
    print_diagnostics(console, diagnosis.diagnostics)
