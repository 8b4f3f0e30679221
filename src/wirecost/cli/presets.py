"""`wirecost presets`."""

from __future__ import annotations

from typing import Annotated

import typer


def presets(
    kind: Annotated[
        str | None, typer.Argument(help="workload, network, plan, ...: a line about each of them.")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Print this one as YAML, to start your own from.")] = None,
) -> None:
    """List what can be named in a study: workloads, networks, plans.

    Example: wirecost presets gpus; wirecost presets gpu A40
    """
    from wirecost.errors import SpecError, deprecated, one_of
    from wirecost.spec.presets import KINDS, names, preset_name, text, unknown_preset

    if kind in ("fabric", "fabrics"):
        deprecated(f"'{kind}'", "'networks'")
        kind = "network"
    if kind is None:
        for each in KINDS:
            if names(each):
                typer.echo(f"{KINDS[each]}: {', '.join(names(each))}")
        return
    kind = {plural: single for single, plural in KINDS.items()}.get(kind, kind)
    if kind not in KINDS:
        raise SpecError(one_of("kind", kind, KINDS))
    if name is not None:
        known = preset_name(kind, name)
        if known is None:
            raise SpecError(unknown_preset(kind, name))
        typer.echo(f"name: {known}\n{text(kind, known)}", nl=False)
        return
    from wirecost.spec.preset_summaries import summary

    width = max(map(len, names(kind)))
    for each in names(kind):
        typer.echo(f"{each:{width}}  {summary(kind, each)}")
