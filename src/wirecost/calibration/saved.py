"""Stores calibrations: one YAML document, alone or in a directory with a file for each stack and cluster.

DIR/calibration.yaml            what was fitted, to what, and how wrong it is
DIR/stack-PRECISION.yaml        a software stack, with what each value rests on
DIR/cluster-NAME.yaml           a cluster

A document that stands alone holds the stacks and clusters as well. Documents and directories of format version 1
are still read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, NonNegativeFloat, field_validator

from wirecost.calibration.fit import Fit
from wirecost.calibration.host import commented_values
from wirecost.calibration.properties import PROPERTIES, split_name
from wirecost.calibration.result import FORMAT_VERSION, Calibration
from wirecost.errors import SpecError
from wirecost.spec import Cluster, Precision, Provenance, Stack, load, load_spec, to_yaml
from wirecost.spec.base import Spec
from wirecost.spec.presets import names
from wirecost.spec.provenance import Sourced

DOCUMENT, STACK, CLUSTER = "calibration.yaml", "stack-", "cluster-"
MOST_SPREAD = 5.0


def _not_truth(value: Any) -> Any:
    """Refuses true and false. Text of a number is accepted, because YAML 1.1 reads 9e-5 as text."""
    if isinstance(value, bool):
        raise ValueError("a positive number, not true or false")
    return value


Positive = Annotated[float, BeforeValidator(_not_truth), Field(gt=0)]
Part = TypeVar("Part", bound=Sourced)


class Document(Spec):
    """The YAML document of a calibration.

    Attributes:
        format_version: version of the document.
        calibrated_on: names of the inputs.
        fits: what was fitted to what, and how wrong it is, for people to read.
        values: values of presets' properties that the data determine, by kind, preset and key, as
            `gpu A100-SXM-80GB matrix_efficiency`. Times are in seconds.
        spread: half width of the 90 % interval, as a natural logarithm.
        stacks: fitted software stacks by precision.
        clusters: fitted clusters by name.
        rows: number of fitted rows, in documents of format version 1.
        error_fitted: error of the fitted rows, in documents of format version 1.
        error_held_out: error of the rows left out, in documents of format version 1.
    """

    format_version: int = 1
    calibrated_on: tuple[str, ...] = ()
    fits: tuple[dict[str, Any], ...] = ()
    values: dict[str, Positive]
    spread: Annotated[Positive, Field(le=MOST_SPREAD)] | None = None
    stacks: dict[Precision, Stack] = {}
    clusters: dict[str, Cluster] = {}
    rows: int | None = None
    error_fitted: NonNegativeFloat | None = None
    error_held_out: NonNegativeFloat | None = None

    @field_validator("format_version")
    @classmethod
    def _known(cls, version: int) -> int:
        if not 1 <= version <= FORMAT_VERSION:
            raise ValueError(f"{version} is newer than this wirecost reads, which is {FORMAT_VERSION}")
        return version

    @field_validator("values")
    @classmethod
    def _within_bounds(cls, values: dict[str, float]) -> dict[str, float]:
        for name, value in values.items():
            try:
                kind, _, key = split_name(name)
            except SpecError as error:
                raise ValueError(str(error)) from error
            entry = PROPERTIES[kind, key]
            if not entry.low * (1 - 1e-6) <= value <= entry.high * (1 + 1e-6):
                raise ValueError(f"{name}: {value:g} lies outside {entry.low:g} to {entry.high:g} {entry.unit}")
        return values


def save(calibration: Calibration, path: Path) -> list[Path]:
    """Writes one document that holds everything.

    Raises:
        SpecError: if the file can't be written.
    """
    stacks = {precision: stack.model_dump(mode="json") for precision, stack in calibration.stacks.items()}
    clusters = {name: c.model_dump(mode="json", exclude_none=True) for name, c in calibration.clusters.items()}
    _write({path: _document(calibration, stacks=_without_none(stacks), clusters=clusters)})
    return [path]


def write(calibration: Calibration, folder: Path) -> list[Path]:
    """Writes a directory: the document, and a file for each stack and cluster.

    Raises:
        SpecError: if the directory can't be written.
    """
    texts = {folder / DOCUMENT: _document(calibration)}
    for precision, stack in calibration.stacks.items():
        fit, host = calibration.of_stacks.get(precision), calibration.hosts.get(precision)
        text = _commented(stack, fit)
        if host is not None:
            text = commented_values(text, host, stack)
        texts[folder / f"{STACK}{precision}.yaml"] = text
    for name, cluster in calibration.clusters.items():
        texts[folder / f"{CLUSTER}{name}.yaml"] = to_yaml(cluster)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder}: can't be written: {error.strerror}") from error
    _write(texts)
    return list(texts)


def read(path: Path) -> Calibration:
    """Returns the calibration that `save` or `write` wrote.

    Raises:
        SpecError: for a file or directory without a calibration, or with a damaged one.
    """
    if path.is_dir():
        return _read_directory(path)
    document = load(Document, path)
    return Calibration(
        values=document.values,
        spread=document.spread,
        stacks=document.stacks,
        clusters=document.clusters,
        name=f"{path.name}: wirecost calibrate",
    )


def _read_directory(folder: Path) -> Calibration:
    stacks = {p.stem.removeprefix(STACK): load(Stack, p) for p in sorted(folder.glob(f"{STACK}*.yaml"))}
    clusters = {p.stem.removeprefix(CLUSTER): load(Cluster, p) for p in sorted(folder.glob(f"{CLUSTER}*.yaml"))}
    try:
        by_precision = {Precision(name): stack for name, stack in stacks.items()}
    except ValueError as error:
        raise SpecError(
            f"{folder}: a stack's file is stack-fp32.yaml, stack-bf16.yaml or stack-fp16.yaml"
        ) from error
    document = folder / DOCUMENT
    calibration = read(document) if document.is_file() else Calibration()
    if not document.is_file():
        by_precision = {precision: _upgraded(stack) for precision, stack in by_precision.items()}
        clusters = {name: _with_upgraded_parts(cluster) for name, cluster in clusters.items()}
    if not document.is_file() and not (clusters and stacks):
        raise SpecError(
            f"{folder}: no calibration: it holds no {DOCUMENT}; `wirecost calibrate ... --out {folder}` writes one"
        )
    calibration.stacks, calibration.clusters = by_precision, clusters
    calibration.name = f"{folder.name}: wirecost calibrate"
    return calibration


def _with_upgraded_parts(cluster: Cluster) -> Cluster:
    return cluster.model_copy(
        update={
            "gpu": cluster.gpu if isinstance(cluster.gpu, str) else _upgraded(cluster.gpu),
            "intra_node": _upgraded(cluster.intra_node),
            "inter_node": _upgraded(cluster.inter_node),
        }
    )


def _upgraded(part: Part) -> Part:
    """Returns a specification of format version 1 with a provenance, for which that version had no key. Fitted
    specifications have the text of `wirecost calibrate`; the others are copies of presets.
    """
    if "provenance" in part.model_fields_set:
        return part
    if (part.calibration or "").startswith("fitted by wirecost calibrate"):
        return part.model_copy(update={"provenance": Provenance.MEASURED})
    kind = type(part).__name__.lower()
    if part.name not in names(kind):
        return part
    preset: Sourced = load_spec(kind, part.name)
    return part.model_copy(update={"provenance": preset.provenance, "calibration": preset.calibration})


def _document(calibration: Calibration, **more: Any) -> str:
    import yaml

    data = {
        "format_version": FORMAT_VERSION,
        "calibrated_on": list(dict.fromkeys(name for fit in calibration.fits for name in fit.inputs)),
        "fits": [_summary(fit) for fit in calibration.fits],
        "spread": _rounded(calibration.spread),
        "values": {name: float(f"{value:.6g}") for name, value in sorted(calibration.values.items())},
    }
    more = {key: value for key, value in more.items() if value}
    return yaml.safe_dump(_without_none(data | more), sort_keys=False, allow_unicode=True, width=100)


def _summary(fit: Fit) -> dict[str, Any]:
    errors = fit.errors
    return {
        "name": fit.name,
        "rows": fit.rows,
        "unit": fit.unit,
        "error_presets": _rounded(errors.presets),
        "error_fitted": _rounded(errors.fitted),
        "error_held_out": _rounded(errors.held_out),
        "error_held_out_presets": _rounded(errors.held_out_presets),
        "held_out": errors.how,
        "determined": {
            p.name: {"value": float(f"{p.value:.6g}"), "within": _rounded(p.within)}
            for p in fit.properties
            if p.determined
        },
        "not_determined": {p.name: p.reason for p in fit.properties if not p.determined},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_none(value) for key, value in data.items() if value is not None}
    return [_without_none(value) for value in data] if isinstance(data, list | tuple) else data


def _write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SpecError(f"{path}: can't be written: {error.strerror}") from error


def _commented(stack: Stack, fit: Fit | None) -> str:
    """Returns the stack's YAML with a comment on the source of each fitted value."""
    text = to_yaml(stack)
    for prop in fit.properties if fit else ():
        if not prop.name.startswith("stack "):
            continue
        key = prop.name.rpartition(" ")[2]
        if prop.within is None:
            comment = f"start value: {prop.reason}"
        elif not prop.determined:
            comment = "fitted, but determined only together with others"
        else:
            comment = f"fitted, within {prop.within:.0%}" if prop.within < 1 else "fitted, its size hardly matters"
        if prop.value and (share := stack.value(key) / prop.value) < 1:
            comment += f", times the {share:.0%} of the GPU's efficiency that this precision reaches"
        text = re.sub(rf"^({key}: \S+)$", rf"\1  # {comment}", text, count=1, flags=re.MULTILINE)
    comment = "scatter of one-rank runs at their host's pace; 0 without any"
    return re.sub(r"^(host_jitter: \S+)$", rf"\1  # {comment}", text, count=1, flags=re.MULTILINE)
