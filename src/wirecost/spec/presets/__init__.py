"""Named presets. Each is a YAML file in the folder of its kind."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from wirecost.errors import one_of
from wirecost.spec.huggingface import imported
from wirecost.spec.yaml import parse_yaml

KINDS = {
    "workload": "workloads",
    "network": "networks",
    "plan": "plans",
    "cluster": "clusters",
    "gpu": "gpus",
    "link": "links",
    "stack": "stacks",
    "study": "studies",
    "testbed": "testbeds",
}


@lru_cache
def names(kind: str) -> tuple[str, ...]:
    """Returns the names of the presets of a kind, which is a key of `KINDS`."""
    folder = files(__name__) / KINDS[kind]
    if not folder.is_dir():
        return ()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


@lru_cache
def text(kind: str, name: str) -> str:
    """Returns the YAML text of a preset."""
    return (files(__name__) / KINDS[kind] / f"{name}.yaml").read_text(encoding="utf-8")


@lru_cache
def _data(kind: str, name: str) -> dict[str, Any]:
    preset = text(kind, name)
    return _parse_fast(preset) or parse_yaml(preset, f"preset {kind} {name}")


def _parse_fast(preset: str) -> dict[str, Any] | None:
    """Parses a preset with libyaml, which is ten times as fast. Returns None if PyYAML was built without it.

    The checks of `parse_yaml` aren't needed, because presets are part of the package.
    """
    loader = getattr(yaml, "CSafeLoader", None)
    return yaml.load(preset, loader) if loader else None  # noqa: S506 - a safe loader


def named(kind: str, value: Any) -> Any:
    """Returns the data of a preset if `value` is text, and otherwise `value` itself.

    A workload may also be the path of a Hugging Face `config.json` (see `wirecost.spec.huggingface`).

    Raises:
        ValueError: if no preset has the name, or if the file can't be read. The message lists the presets.
    """
    if kind == "workload" and (data := imported(value)) is not None:
        return data
    if not isinstance(value, str):
        return value
    if value not in names(kind):
        raise ValueError(one_of(kind, value, names(kind)))
    return {"name": value, **_data(kind, value)}
