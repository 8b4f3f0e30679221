"""Named presets: one YAML file each, in the folder of their kind."""

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
}


@lru_cache
def names(kind: str) -> tuple[str, ...]:
    """The presets of a kind ('workload', 'network', 'plan', 'cluster', 'gpu', 'link', 'stack', 'study')."""
    folder = files(__name__) / KINDS[kind]
    if not folder.is_dir():
        return ()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


@lru_cache
def text(kind: str, name: str) -> str:
    """A preset's YAML as it ships."""
    return (files(__name__) / KINDS[kind] / f"{name}.yaml").read_text(encoding="utf-8")


@lru_cache
def _data(kind: str, name: str) -> dict[str, Any]:
    own = text(kind, name)
    return _fast(own) or parse_yaml(own, f"preset {kind} {name}")


def _fast(own: str) -> dict[str, Any] | None:
    """Presets are our own text: libyaml reads them ten times as fast, where PyYAML was built with it."""
    loader = getattr(yaml, "CSafeLoader", None)
    return yaml.load(own, loader) if loader else None  # noqa: S506 - a safe loader


def named(kind: str, value: Any) -> Any:
    """A preset's data where `value` names one, else `value` itself. A workload may also be a Hugging Face
    `config.json` (see `spec.huggingface`).

    Raises:
        ValueError: for a name that no preset has, with those that are there; for a file that can't be read.
    """
    if kind == "workload" and (data := imported(value)) is not None:
        return data
    if not isinstance(value, str):
        return value
    if value not in names(kind):
        raise ValueError(one_of(kind, value, names(kind)))
    return {"name": value, **_data(kind, value)}
