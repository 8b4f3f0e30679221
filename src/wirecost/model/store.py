"""Fitted values into YAML: in place into presets, or as a calibration file that predictions can be given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.errors import SpecError, shorten
from wirecost.model.properties import split_property
from wirecost.spec import GPU, Link, Stack, read_yaml, validate
from wirecost.spec.presets import KINDS
from wirecost.units import Seconds

if TYPE_CHECKING:
    from wirecost.model.setup import Setup

MOST_SPREAD = 5.0
SECONDS = ("latency", "latency_per_step")


def _text(prop: str, value: float) -> str:
    number = f"{value:.4g}"
    if "e" in number and "." not in number:
        number = number.replace("e", ".0e")  # YAML 1.1 reads 2e-05 as text
    return f"{number} s" if prop in SECONDS else number


def _scaled_time(value: float) -> str:
    return f"{value * 1e6:.4g} us"


def write_presets(values: Mapping[str, float], folder: Path, note: Mapping[str, str] | None = None) -> list[Path]:
    """Replaces (or adds) each fitted property's line in its preset's YAML file, and the `calibration` line where
    `note` has one for 'kind preset'. Comments and all other lines stay."""
    touched: dict[Path, str] = {}
    for name, value in values.items():
        kind, preset, prop = split_property(name)
        path = folder / KINDS[kind] / f"{preset}.yaml"
        text = touched.get(path) or path.read_text(encoding="utf-8")
        shown = _scaled_time(value) if prop in SECONDS else _text(prop, value)
        touched[path] = _with_line(text, prop, shown)
    for owner, said in (note or {}).items():
        kind, preset = owner.split()
        path = folder / KINDS[kind] / f"{preset}.yaml"
        text = touched.get(path) or path.read_text(encoding="utf-8")
        touched[path] = _with_line(text, "calibration", '"' + said.replace('"', "'") + '"')
    for path, text in touched.items():
        path.write_text(text, encoding="utf-8")
    return sorted(touched)


def set_line(path: Path, key: str, value: str) -> None:
    """One key of a preset's YAML file, replaced or added."""
    path.write_text(_with_line(path.read_text(encoding="utf-8"), key, value), encoding="utf-8")


def _with_line(text: str, key: str, value: str) -> str:
    line = f"{key}: {value}"
    pattern = re.compile(rf"^{re.escape(key)}:.*$", re.MULTILINE)
    return (
        pattern.sub(lambda _: line, text, count=1) if pattern.search(text) else text.rstrip("\n") + f"\n{line}\n"
    )


def save_calibration(result: Any, path: Path, sources: Sequence[str]) -> None:
    """A Calibration as a YAML file that `apply_calibration` reads: values by property, with what they came
    from."""
    import yaml

    held = result.held_out
    data = {
        "calibrated_on": list(sources),
        "rows": result.rows,
        "error_fitted": round(result.mape, 5),
        "error_held_out": None if held is None else round(held, 5),
        "spread": None if result.spread is None else round(result.spread, 5),
        "values": {name: float(f"{value:.6g}") for name, value in sorted(result.values.items())},
    }
    try:
        path.write_text(yaml.safe_dump(data, sort_keys=False, width=100), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error


def read_calibration(path: Path) -> tuple[dict[str, float], float | None]:
    """Values by property and the spread of a calibration file.

    Raises:
        SpecError: for a file that isn't one, or a property that isn't.
    """
    data = read_yaml(path)
    values = data.get("values")
    if not isinstance(values, dict):
        raise SpecError(f"{path}: values: is missing; a calibration file has values by property")
    for name, value in values.items():
        split_property(name)
        if not _is_number(value, 1e20):
            raise SpecError(f"{path}: {name}: a positive number, not {shorten(value)}")
    spread = data.get("spread")
    if spread is not None and not _is_number(spread, MOST_SPREAD):
        raise SpecError(f"{path}: spread: a positive number up to {MOST_SPREAD}, not {shorten(spread)}")
    return {name: float(value) for name, value in values.items()}, None if spread is None else float(spread)


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


def apply_calibration(made: Setup, path: Path) -> Setup:
    """The setup with its GPU, links and stack replaced by what a calibration file says of them."""
    values, spread = read_calibration(path)
    gpu, stack = made.cluster.accelerator, made.stack
    links = {"intra_node": made.cluster.intra_node, "inter_node": made.cluster.inter_node}
    said = f"{path.name}: wirecost calibrate"
    for name, value in values.items():
        kind, preset, prop = name.split()
        if kind == "gpu" and preset == gpu.name:
            gpu = gpu.model_copy(update={prop: value, "calibration": said})
        elif kind == "stack" and preset == stack.name:
            update = {prop: value, "calibration": said}
            stack = stack.model_copy(update=update if spread is None else {**update, "spread": spread})
        elif kind == "link":
            for side, link in links.items():
                if link.name == preset:
                    changed: Link = link.model_copy(update={prop: Seconds(value) if prop in SECONDS else value})
                    links[side] = changed
    gpu = validate(GPU, gpu.model_dump(), f"{path}: gpu {gpu.name}")
    stack = validate(Stack, stack.model_dump(), f"{path}: stack {stack.name}")
    links = {side: validate(Link, link.model_dump(), f"{path}: link {link.name}") for side, link in links.items()}
    cluster = made.cluster.model_copy(update={"gpu": gpu, **links})
    return replace(made, cluster=cluster, stack=stack)
