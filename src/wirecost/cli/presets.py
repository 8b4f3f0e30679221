"""`wirecost presets`."""

from __future__ import annotations

from typing import Annotated

import typer


def presets(
    kind: Annotated[
        str | None, typer.Argument(help="workload, network, plan, ...; all kinds if left out.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Print this one as YAML, to start your own from.")] = None,
) -> None:
    """List what can be named in a study: workloads, networks, plans."""
    from wirecost.errors import SpecError, deprecated, one_of
    from wirecost.spec.presets import KINDS, names, preset_name, text, unknown_preset

    if kind in ("fabric", "fabrics"):
        deprecated(f"'{kind}'", "'networks'")
        kind = "network"
    if kind is not None and kind.removesuffix("s") not in KINDS:
        raise SpecError(one_of("kind", kind, KINDS))
    chosen = [kind.removesuffix("s")] if kind is not None else list(KINDS)
    if name is not None:
        (only,) = chosen
        known = preset_name(only, name)
        if known is None:
            raise SpecError(unknown_preset(only, name))
        typer.echo(f"name: {known}\n{text(only, known)}", nl=False)
        return
    for each in chosen:
        if names(each):
            typer.echo(f"{KINDS[each]}: {', '.join(names(each))}")
