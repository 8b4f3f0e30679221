"""Completion of presets' names by the shell."""

from __future__ import annotations

from collections.abc import Callable


def presets_of(kind: str) -> Callable[[str], list[str]]:
    """Returns a function that completes the names of presets of one kind: workload, cluster, plan, network, ..."""

    def complete(incomplete: str) -> list[str]:
        from wirecost.spec.presets import names

        return [name for name in names(kind) if name.startswith(incomplete)]

    return complete
