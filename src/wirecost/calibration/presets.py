"""Fitted values into the YAML files of presets, in place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from wirecost.calibration.properties import TIMES, split_name
from wirecost.spec import Provenance
from wirecost.spec.presets import KINDS


def _text(key: str, value: float) -> str:
    if key in TIMES:
        return f"{value * 1e6:.4g} us"
    number = f"{value:.4g}"
    if "e" in number and "." not in number:
        number = number.replace("e", ".0e")  # YAML 1.1 reads 2e-05 as text
    return number


def write_presets(values: Mapping[str, float], folder: Path, note: Mapping[str, str] | None = None) -> list[Path]:
    """Replaces (or adds) each fitted property's line in its preset's YAML file, and the `calibration` line where
    `note` has one for 'kind preset'. Comments and all other lines stay."""
    touched: dict[Path, str] = {}
    for name, value in values.items():
        kind, preset, key = split_name(name)
        path = folder / KINDS[kind] / f"{preset}.yaml"
        text = touched.get(path) or path.read_text(encoding="utf-8")
        touched[path] = _with_line(text, key, _text(key, value))
    for owner, calibrated in (note or {}).items():
        kind, preset = owner.split()
        path = folder / KINDS[kind] / f"{preset}.yaml"
        text = touched.get(path) or path.read_text(encoding="utf-8")
        text = _with_line(text, "provenance", Provenance.MEASURED)
        touched[path] = _with_line(text, "calibration", '"' + calibrated.replace('"', "'") + '"')
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
