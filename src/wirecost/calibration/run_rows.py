"""Poses engine runs and traces as a problem for the solver: the time of each part of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wirecost.calibration.inputs.runs import NOISE, Observed
from wirecost.calibration.properties import Parts
from wirecost.calibration.solver import Array
from wirecost.costmodel.inputs import Layout, Machine, Shape
from wirecost.costmodel.iteration import iterate
from wirecost.costmodel.machine import Formats, Node, build
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.vectorised import stacked_layout, stacked_shape
from wirecost.spec import Cluster, MatrixPrecision, Precision

OF_MODEL = 0.05
"""Standard deviation of log(modelled / measured) of a part of a run that no value of the properties explains: the
presets leave 3 to 6 % of most tables that they are fitted to (docs/validation/cost-model-errors.md)."""
ENGINE_PARTS = ("forward", "backward", "optimizer", "other")


@dataclass(frozen=True)
class _Group:
    """Runs on the same machine; `members` are their indices among all runs."""

    cores: int | None
    ranks_per_host: int
    shape: Shape
    layout: Layout
    members: np.ndarray


class Runs:
    """Runs of one precision, as a problem for the solver. Compute is fitted apart from communication."""

    def __init__(self, runs: Sequence[Observed], parts: Parts, precision: Precision) -> None:
        self.runs, self.parts, self.precision = list(runs), parts, precision
        groups: dict[tuple[int | None, int], list[int]] = {}
        for index, run in enumerate(self.runs):
            groups.setdefault((run.cores, run.ranks_per_host), []).append(index)
        self._groups = [
            _Group(
                cores,
                ranks_per_host,
                stacked_shape([shape_of(self.runs[i].workload) for i in members]),
                stacked_layout([_layout(self.runs[i], parts) for i in members]),
                np.array(members),
            )
            for (cores, ranks_per_host), members in groups.items()
        ]
        self.measured = {part: np.array([run.parts.get(part, np.nan) for run in self.runs]) for part in NOISE}
        self._noise = {part: np.hypot([NOISE[part] * run.noise for run in self.runs], OF_MODEL) for part in NOISE}
        self._known = np.concatenate([~np.isnan(self.measured[part]) for part in NOISE])
        self.owners = np.concatenate([np.arange(len(self.runs)) for _ in NOISE])[self._known]

    @property
    def rows(self) -> int:
        """Returns the number of runs."""
        return len(self.runs)

    def predict(self, values: Mapping[str, float]) -> dict[str, Array]:
        """Returns the seconds of each run by part, as `Observed.parts` has them."""
        parts = self.parts.with_values(values)
        seconds = {part: np.empty(self.rows) for part in NOISE}
        for group in self._groups:
            times = iterate(group.shape, group.layout, self._machine(parts, group))
            busy = times.compute_s + times.host_s
            forward = group.layout.accumulation * (times.forward_s + times.ends_s / 3)
            places = group.members
            seconds["forward"][places] = forward
            seconds["backward"][places] = np.maximum(busy - forward, 1e-9)
            seconds["optimizer"][places] = times.optimizer_s
            seconds["other"][places] = times.other_s
            seconds["device"][places] = times.compute_s + times.optimizer_s
            seconds["window"][places] = times.total_s - times.exposed_comm_s
        return seconds

    def errors(self, values: Mapping[str, float]) -> Array:
        """Returns log(predicted / measured) over its noise of every part that was measured."""
        predicted = self.predict(values)
        every = [np.log(predicted[part] / self.measured[part]) / self._noise[part] for part in NOISE]
        return np.concatenate(every)[self._known]

    def row_errors(self, values: Mapping[str, float]) -> Array:
        """Returns predicted / measured - 1 of each run's time without exposed communication."""
        predicted = self.predict(values)
        windows = np.array(["window" in run.parts for run in self.runs])
        modelled = sum(np.where(np.isnan(self.measured[p]), 0.0, predicted[p]) for p in ENGINE_PARTS)
        measured = sum(np.nan_to_num(self.measured[p]) for p in ENGINE_PARTS)
        of_engine = modelled / np.maximum(measured, 1e-12)
        return np.where(windows, predicted["window"] / self.measured["window"], of_engine) - 1

    def _machine(self, parts: Parts, group: _Group) -> Machine:
        cores = parts.shared_cores
        if cores is not None and group.cores:
            # A run may have been limited to fewer of the machine's cores.
            cores = cores.model_copy(update={"count": group.cores})
        node = Node(group.ranks_per_host, parts.intra, parts.inter)
        return build(parts.gpu, parts.stack, node, Formats(MatrixPrecision(self.precision)), cores)


def _layout(run: Observed, parts: Parts) -> Layout:
    hosts = -(-run.ranks // run.ranks_per_host)
    cluster = Cluster(
        name="run",
        gpu=parts.gpu,
        gpus_per_node=run.ranks_per_host,
        nodes=hosts,
        intra_node=parts.intra,
        inter_node=parts.inter,
    )
    return layout_of(
        setup(
            run.workload,
            run.plan,
            cluster,
            stack=parts.stack,
            gpus=run.ranks,
            micro_batch=run.micro_batch,
            global_batch=run.global_batch,
        )
    )
