"""Fits links to collective benchmarks (nccl-tests or `wirecost bench` tables)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wirecost.errors import SpecError
from wirecost.model.collectives import all_reduce_s, gather_s, group, link_numbers
from wirecost.model.columns import CannotExpressError, number
from wirecost.model.inputs import Machine
from wirecost.model.machine import build, stack_named
from wirecost.model.rows import INTER_LINKS, INTRA_DEFAULT, INTRA_LINKS, find_gpu
from wirecost.spec import Link, MatrixPrecision
from wirecost.spec.presets import named

PROPERTIES: tuple[str, ...] = ("efficiency", "latency", "latency_per_step", "half_rate_bytes")
SMALLEST_BYTES = 64e3
"""Below, a benchmark measures launches rather than the link."""


@dataclass
class LinkFit:
    """What one link's benchmarks gave: values by property, and the mean error before and after."""

    link: str
    values: dict[str, float]
    start: dict[str, float]
    rows: int
    before: float
    mape: float


@dataclass
class Sample:
    """One measured collective: on which link (`kind`: intra or inter), its size in bytes and its time."""

    link: str
    kind: str
    collective: str
    gpus: float
    nodes: float
    size: float
    seconds: float
    gpu: str


def is_benchmark(columns: set[str]) -> bool:
    return {"size_bytes", "time_us"} <= columns


def sample_of(row: Mapping[str, str | None]) -> Sample | None:
    """One row of a benchmark table; None where it is no collective that links can be fitted to.

    Raises:
        CannotExpressError: for a number that can't be, or an unknown GPU.
    """
    collective = (row.get("collective") or "all_reduce").lower().replace("allreduce", "all_reduce")
    known = next((k for k in ("all_reduce", "all_gather", "reduce_scatter") if k in collective), None)
    size, time = number(row, "size_bytes"), number(row, "time_us")
    gpus, nodes = number(row, "gpus") or number(row, "n_gpus"), number(row, "nodes") or 1.0
    device = find_gpu(row.get("gpu") or "A100")
    if known is None or not size or not time or not gpus or gpus < 2 or size < SMALLEST_BYTES:
        return None
    if nodes > gpus:
        raise CannotExpressError(f"nodes is {nodes:.0f}, more than its {gpus:.0f} GPUs")
    text = (row.get("interconnect") or "").lower()
    if nodes > 1:
        link = next((preset for word, preset in INTER_LINKS if word in text), "slingshot-10")
    else:
        link = next((preset for word, preset in INTRA_LINKS if word in text), INTRA_DEFAULT[device.architecture])
    return Sample(link, "inter" if nodes > 1 else "intra", known, gpus, nodes, size, time * 1e-6, device.name)


def _machine(sample: Sample) -> Machine:
    intra = Link.model_validate(named("link", sample.link if sample.kind == "intra" else "nvlink3"))
    inter = Link.model_validate(named("link", sample.link if sample.kind == "inter" else "infiniband-hdr"))
    per_node = int(sample.gpus / sample.nodes)
    return build(
        find_gpu(sample.gpu),
        stack_named("generic"),
        intra=intra,
        inter=inter,
        gpus_per_node=max(per_node, 1),
        precision=MatrixPrecision.FP16,  # every GPU has it, and links don't care
    )


def predict_benchmark(sample: Sample, fits: Sequence[LinkFit] = ()) -> float:
    """Seconds of a collective under the links' presets, or under what `fits` found for its link."""
    machine = _machine(sample)
    fields = dict(zip(PROPERTIES, ("efficiency", "latency_s", "step_s", "half_bytes"), strict=True))
    for found in fits:
        if found.link == sample.link:
            changes = {f"{sample.kind}_{fields[name.split()[2]]}": value for name, value in found.values.items()}
            machine = replace(machine, **changes)
    members = group(sample.gpus, 1.0, sample.gpus, machine)
    one = all_reduce_s if sample.collective == "all_reduce" else gather_s
    return float(one(sample.size, members, machine))


def fit_links(table: Sequence[Mapping[str, str | None]]) -> list[LinkFit]:
    """One fit for each link in the table: efficiency, latency, latency per step and half-rate size. Needs scipy.

    Raises:
        SpecError: where no row is a collective that can be fitted.
    """
    samples = []
    for row in table:
        with contextlib.suppress(CannotExpressError):
            if (sample := sample_of(row)) is not None:
                samples.append(sample)
    if not samples:
        raise SpecError(
            "no row is an all-reduce, all-gather or reduce-scatter of 64 kB or more on two or more GPUs"
        )
    return [_fit(name, [s for s in samples if s.link == name]) for name in sorted({s.link for s in samples})]


def _fit(name: str, samples: list[Sample]) -> LinkFit:
    from scipy.optimize import least_squares

    kind = samples[0].kind
    machines = [_machine(s) for s in samples]
    start = link_numbers(Link.model_validate(named("link", name)), kind)
    keys = [f"{kind}_{part}" for part in ("efficiency", "latency_s", "step_s", "half_bytes")]
    low = np.log([0.02, 1e-6, 1e-8, 1.0])
    high = np.log([1.0, 1e-2, 1e-3, 1e9])
    x0 = np.clip(np.log([start[k] for k in keys]), low + 1e-6, high - 1e-6)

    def errors(x: np.ndarray) -> np.ndarray:
        changes = dict(zip(keys, np.exp(x).tolist(), strict=True))
        out = []
        for sample, machine in zip(samples, machines, strict=True):
            changed = replace(machine, **changes)
            members = group(sample.gpus, 1.0, sample.gpus, changed)
            one = all_reduce_s if sample.collective == "all_reduce" else gather_s
            out.append(np.log(float(one(sample.size, members, changed)) / sample.seconds))
        return np.array(out)

    found = least_squares(
        lambda x: np.concatenate([np.arcsinh(errors(x) / 0.1) * 0.1, 0.01 * (x - x0)]),
        x0,
        bounds=(low, high),
        max_nfev=60,
    )
    after = np.expm1(errors(found.x))
    before = np.expm1(errors(x0))
    values = {f"link {name} {prop}": float(v) for prop, v in zip(PROPERTIES, np.exp(found.x), strict=True)}
    begin = {f"link {name} {prop}": float(start[k]) for prop, k in zip(PROPERTIES, keys, strict=True)}
    return LinkFit(
        name, values, begin, len(samples), float(np.mean(np.abs(before))), float(np.mean(np.abs(after)))
    )
