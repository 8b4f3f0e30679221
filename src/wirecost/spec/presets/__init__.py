"""Named presets. Each is a YAML file in the folder of its kind."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from wirecost.errors import one_of, shorten
from wirecost.spec.huggingface import imported
from wirecost.spec.huggingface.refused import refused_name
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


_VENDOR = re.compile(r"^(?:nvidia|amd|intel|google|aws|huawei)[ _-]+", re.IGNORECASE)
MOST_LISTED = 40
"""Largest number of presets of a kind whose names stand in a message."""
_PREDICT = "wirecost predict gpt-2-medium --cluster"
INLINE = {
    "cluster": (
        "or describe it in place of the name, as in: "
        f"{_PREDICT} '{{gpu: A10, gpus_per_node: 2, nodes: 2, intra_node: pcie4, inter_node: {{rate: 25 Gb/s}}}}'"
    ),
    "gpu": (
        "or give the values of its datasheet in place of the name, as in: "
        f"{_PREDICT} '{{gpu: {{memory_bytes: 24000000000, memory_bandwidth_Bps: 6.0e+11, "
        "peak_flops: {bf16: 1.25e+14}}, gpus_per_node: 2, nodes: 2, intra_node: pcie4, inter_node: tcp-25g}'"
    ),
    "link": (
        "or give its rate in place of the name, as in: "
        f"{_PREDICT} '{{gpu: A100, gpus_per_node: 8, nodes: 2, intra_node: nvlink3, "
        "inter_node: {rate: 50 Gb/s, latency: 20 us}}'"
    ),
    "plan": (
        "or give its keys in place of the name, as in: wirecost predict gpt-2-medium --cluster dgx-h100 --plan "
        "'{data_parallel: zero1, precision: bf16, tensor_parallel: 2}'"
    ),
    "stack": (
        "or describe it in a file, beginning with one that is there, as in: wirecost presets stack generic > "
        "mine.yaml; wirecost predict gpt-2-medium --cluster dgx-h100 --stack mine.yaml"
    ),
    "workload": (
        "or give a config.json, hf://ORG/NAME or the dimensions in place of the name, as in: wirecost predict "
        "'{layers: 24, hidden: 1024, heads: 16, vocab_size: 50257, sequence_length: 1024}' --cluster dgx-h100"
    ),
}
"""How to do without a preset, by kind, with a command that runs."""


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


@lru_cache
def _other_names(kind: str) -> dict[str, str]:
    """Returns the names of presets by their plain spelling and that of their aliases."""
    spelled: dict[str, str] = {}
    for name in names(kind):
        for other in _data(kind, name).get("aliases") or ():
            spelled.setdefault(plain(other), name)
    return spelled | {plain(name): name for name in names(kind)}


def plain(name: str) -> str:
    """Returns a name in lower case without what separates its words. Between two digits a separator is kept: a
    model of 1.3b isn't one of 13b.
    """
    lower = re.sub(r"[^a-z0-9.]+", "-", name.lower())
    return re.sub(r"(?<![0-9])[-.]+|[-.]+(?![0-9])", "", lower)


def preset_name(kind: str, value: str) -> str | None:
    """Returns the name of the preset that a name means, or None if there is none.

    GPUs, clusters, links, stacks and workloads are also found by an alias, and whatever separates the words of
    the name.
    """
    if value in names(kind):
        return value
    if kind not in INLINE:
        return None
    spelled = plain(_VENDOR.sub("", value[:100].strip()) if kind == "gpu" else value[:100])
    return _other_names(kind).get(spelled)


def unknown_preset(kind: str, value: str) -> str:
    """Returns a one-line message that no preset has a name, with the nearest name and how to do without one."""
    known = names(kind)
    if len(known) <= MOST_LISTED:
        message = one_of(kind, value, known)
    else:
        spelled = {name.lower(): name for name in known}
        near = difflib.get_close_matches(value[:100].lower(), spelled, n=1)
        hint = f" (did you mean '{spelled[near[0]]}'?)" if near else ""
        message = (
            f"unknown {kind} '{shorten(value, quoted=False)}'{hint}; "
            f"`wirecost presets {KINDS[kind]}` lists all {len(known)}"
        )
    return f"{message}; {INLINE[kind]}" if kind in INLINE else message


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
    name = preset_name(kind, value)
    if name is None:
        reason = refused_name(value) if kind == "workload" else None
        raise ValueError(unknown_preset(kind, value) if reason is None else reason)
    return {"name": name, **_data(kind, name)}
