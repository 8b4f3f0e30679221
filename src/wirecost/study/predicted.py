"""A study predicted: a predicted breakdown for each cell, before anything is measured.

FOLDER/study.yaml                the study that was predicted
FOLDER/SLUG.json                 a cell's predicted Breakdown
FOLDER/predictions.json          what it rests on, and the cells that can't be predicted, with the reason
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wirecost.breakdown import Breakdown, ResultWarning
from wirecost.calibration.assemble import Calibration
from wirecost.emulation.hosts import MTU
from wirecost.errors import SpecError, WirecostError
from wirecost.model.nccl import VETH_BPS
from wirecost.model.predict import Prediction, predict
from wirecost.model.setup import setup
from wirecost.reading import read_result
from wirecost.spec import Cluster, Experiment, Link, Network, Stack, Study, to_yaml
from wirecost.units import BitsPerSecond, format_rate_bps

FORMAT_VERSION = 1
INDEX = "predictions.json"
PAYLOAD = 1 - (14 + 20 + 32) / (MTU + 14)
"""The share of a frame that TCP carries: Ethernet, IPv4 and TCP with time stamps (RFC 9293, RFC 7323) add to it,
and a shaped link counts all of it."""


@dataclass(frozen=True)
class PredictedCell:
    """`prediction` is None where the cell can't be predicted; `refused` says why."""

    experiment: Experiment
    prediction: Prediction | None
    refused: str | None = None


def predict_study(
    study: Study,
    calibration: Calibration | None = None,
    *,
    cluster: Cluster | None = None,
    stack: Stack | None = None,
) -> list[PredictedCell]:
    """Predicts every cell of a study, from a calibration or from one cluster and stack for all.

    A network's cluster is the calibration's of that name. One that was not benchmarked, but is emulated at a
    stated rate, is taken at that rate less what protocols add, and says so.
    """
    return [_cell(e, calibration, cluster, stack) for e in study.experiments()]


def _cell(
    experiment: Experiment, calibration: Calibration | None, cluster: Cluster | None, stack: Stack | None
) -> PredictedCell:
    warnings: list[ResultWarning] = []
    try:
        if calibration is not None:
            stack = stack or _stack(experiment, calibration)
            cluster = cluster or _cluster(experiment.network, calibration, warnings)
        elif cluster is not None and experiment.network.emulate and experiment.network.emulate.rate:
            cluster = _at_nominal_rate(experiment.network, cluster, warnings)
        if cluster is None:
            raise SpecError("nothing says on what to predict: a calibration or a cluster")
        placed = cluster.model_copy(
            update={
                "gpus_per_node": experiment.ranks_per_host,
                "nodes": experiment.hosts,
                **({"nics_per_node": 1} if experiment.network.emulate is not None else {}),
            }
        )
        made = setup(
            experiment.workload,
            experiment.plan,
            placed,
            stack=stack,
            gpus=experiment.ranks,
            micro_batch=experiment.micro_batch,
            global_batch=experiment.global_batch,
        )
        found = predict(made)
    except WirecostError as error:
        return PredictedCell(experiment, None, str(error))
    network = found.breakdown.network
    assert network is not None
    breakdown = found.breakdown.model_copy(
        update={
            "title": experiment.slug,
            "network": network.model_copy(
                update={"name": experiment.network.name, "emulated": experiment.network.emulate is not None}
            ),
            "warnings": (*found.breakdown.warnings, *warnings),
        }
    )
    return PredictedCell(
        experiment,
        Prediction(made, found.shape, found.layout, found.machine, found.times, found.memory, breakdown),
    )


def _stack(experiment: Experiment, calibration: Calibration) -> Stack:
    precision = experiment.plan.precision
    if precision not in calibration.stacks:
        known = ", ".join(sorted(calibration.stacks))
        raise SpecError(f"precision {precision} was not calibrated, {known} was: add a run of it")
    return calibration.stacks[precision]


def _cluster(network: Network, calibration: Calibration, warnings: list[ResultWarning]) -> Cluster:
    if network.name in calibration.clusters:
        return calibration.clusters[network.name]
    if network.emulate is None or network.emulate.rate is None:
        raise SpecError(
            f"network '{network.name}' was not benchmarked and states no rate; benchmarked: "
            f"{', '.join(sorted(calibration.clusters))}"
        )
    return _at_nominal_rate(network, next(iter(calibration.clusters.values())), warnings)


def _at_nominal_rate(network: Network, cluster: Cluster, warnings: list[ResultWarning]) -> Cluster:
    assert network.emulate is not None
    rate = network.emulate.rate
    assert rate is not None
    warnings.append(
        ResultWarning(
            code="not_benchmarked",
            message=f"network '{network.name}' was not benchmarked: its nominal {format_rate_bps(rate)} is used, "
            "less what protocols add",
        )
    )
    link = Link(
        name=network.name,
        rate=rate,
        interface_rate=BitsPerSecond(VETH_BPS),
        efficiency=PAYLOAD,
        source="nominal rate of the emulated network, less what Ethernet, IP and TCP add to a frame",
    )
    return cluster.model_copy(update={"inter_node": link, "network_efficiency": None, "name": network.name})


def write_predictions(
    cells: Sequence[PredictedCell], study: Study, rests_on: dict[str, Any], folder: Path
) -> None:
    """Raises SpecError if the folder holds predictions or a study already, or can't be written."""
    if (folder / INDEX).exists():
        raise SpecError(
            f"{folder}: holds predictions already: choose another --out, so that none is changed after measuring"
        )
    if (folder / "study.yaml").exists():
        raise SpecError(f"{folder}: holds a study.yaml, which would be replaced: choose another --out")
    index = {
        "format_version": FORMAT_VERSION,
        "study": study.name,
        **rests_on,
        "predicted": [c.experiment.slug for c in cells if c.prediction],
        "refused": [{"cell": c.experiment.slug, "reason": c.refused} for c in cells if not c.prediction],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(to_yaml(study), encoding="utf-8")
        for cell in cells:
            if cell.prediction:
                text = cell.prediction.breakdown.model_dump_json(indent=1)
                (folder / f"{cell.experiment.slug}.json").write_text(text, encoding="utf-8")
        (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{folder}: can't be written: {error.strerror}") from error


def read_predictions(folder: Path) -> dict[str, Breakdown]:
    """Predicted breakdowns by the experiment's slug.

    Raises:
        SpecError: for a folder without predictions, or a damaged file.
    """
    if not (folder / INDEX).is_file():
        raise SpecError(
            f"{folder}: holds no predictions (there is no {INDEX}); `wirecost predict --study` writes them"
        )
    found = {}
    try:
        index = json.loads(read_result(folder / INDEX, SpecError))
        for slug in index["predicted"]:
            path = folder / f"{Path(str(slug)).name}.json"
            text = read_result(path, SpecError)
            found[str(slug)] = Breakdown.model_validate_json(text)
    except (RecursionError, ValueError, ValidationError, KeyError, TypeError) as error:
        raise SpecError(f"{folder}: damaged predictions: {' '.join(str(error).split())[:160]}") from error
    return found
