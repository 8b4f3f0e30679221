"""`wirecost doctor`: what this machine offers a job's network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMAT, check_format, console, print_csv, print_diagnostics, table

if TYPE_CHECKING:
    from wirecost.doctor import Diagnosis


def doctor(
    format: Annotated[str, FORMAT] = "text",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there is a warning or an error.")
    ] = False,
) -> None:
    """Say which transport NCCL would use on this machine.

    Looked at are GPUs, NICs, RDMA devices, GPUDirect, container limits and emulation. The answer says what stands
    in the way of a better transport, and the remedy."""
    from wirecost.diagnostics import Severity, area_of
    from wirecost.doctor import diagnose

    format = check_format(format)
    diagnosis = diagnose()
    if format == "json":
        typer.echo(json.dumps(diagnosis.as_json(), indent=2))
    elif format == "csv":
        print_csv([{"area": area_of(d.code).value, **d.as_row()} for d in diagnosis.diagnostics])
    elif format == "text":
        _print(diagnosis)
    else:
        head = ["severity", "code", "message", "remedy"]
        body = [[d.severity.value, d.code, d.message, d.remedy or ""] for d in diagnosis.diagnostics]
        title = f"Between hosts NCCL would use {diagnosis.choice.between_hosts.value}"
        console(format).print(table(title, head, body))
    if strict and diagnosis.at_least(Severity.WARNING):
        raise typer.Exit(1)


def _print(diagnosis: Diagnosis) -> None:
    from rich.text import Text

    out = console()

    def line(*parts: tuple[str, str]) -> None:
        text = Text()
        for words, style in parts:
            text.append("".join(c if c.isprintable() else "?" for c in words), style)
        out.print(text, soft_wrap=True)

    c = diagnosis.choice
    line(("Between hosts NCCL would use: ", "bold"), (c.between_hosts.value, "bold"), (f" ({c.between_why})", ""))
    if c.inside_host is not None:
        line(("Inside this host: ", "bold"), (c.inside_host.value, "bold"), (f" ({c.inside_why})", ""))
    line(("The log of a run proves it: wirecost transport LOG", "dim"))
    out.print()
    print_diagnostics(out, diagnosis.diagnostics)
