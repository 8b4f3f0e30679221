"""Predicts a study: a breakdown for each experiment before anything is measured.

FOLDER/study.yaml                the study that was predicted
FOLDER/SLUG.json                 an experiment's predicted Breakdown
FOLDER/predictions.json          its inputs, and the experiments that can't be predicted, with the reason
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wirecost.breakdown import Breakdown
from wirecost.calibration.result import Calibration
from wirecost.costmodel.nccl import VETH_BPS
from wirecost.costmodel.setup import Setup, setup
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.emulation.hosts import MTU
from wirecost.errors import SpecError, WirecostError
from wirecost.prediction.predict import Prediction, predict
from wirecost.reading import read_result
from wirecost.spec import Cluster, Experiment, Link, Network, Provenance, Stack, Study, to_yaml
from wirecost.spec.graphs import may_replay
from wirecost.spec.stack_costs import LAUNCH_TIMES
from wirecost.units import BitsPerSecond, format_rate_bps

FORMAT_VERSION = 1
INDEX = "predictions.json"
PAYLOAD = 1 - (14 + 20 + 32) / (MTU + 14)
"""The share of a frame that TCP carries: Ethernet, IPv4 and TCP with time stamps (RFC 9293, RFC 7323) add to it,
and a shaped link counts all of it."""


@dataclass(frozen=True)
class PredictedExperiment:
    """An experiment with its prediction; None if it can't be predicted, with the reason in `refused`."""

    experiment: Experiment
    prediction: Prediction | None
    refused: str | None = None


def predict_study(
    study: Study,
    calibration: Calibration | None = None,
    *,
    cluster: Cluster | None = None,
    stack: Stack | None = None,
) -> list[PredictedExperiment]:
    """Predicts every experiment of a study, from a calibration or from one cluster and stack for all.

    A network's cluster is the calibration's cluster of that name. For an emulated network without a benchmark, the
    stated rate less protocol overhead is used, with a warning. One rank needs no network.

    Raises:
        SpecError: if every workload is a command, or every rule of scaling `max-batch`, whose batches are found by
            running.
    """
    if not study.models:
        raise SpecError(
            f"{study.name}: has commands only, and only models are predicted before they run; run it with "
            "profiled iterations, and ask its traces with `wirecost whatif`"
        )
    experiments = study.model_experiments()
    if study.batch_searches() and not experiments:
        raise SpecError(
            f"{study.name}: max-batch finds its batches by running; predict a study with other scaling"
        )
    return [_predicted(e, calibration or Calibration(), cluster, stack) for e in experiments]


def _predicted(
    experiment: Experiment, calibration: Calibration, cluster: Cluster | None, stack: Stack | None
) -> PredictedExperiment:
    diagnostics: list[Diagnostic] = []
    try:
        if stack is None and (calibration.stacks or cluster is None):
            stack = _stack(experiment, calibration)
        if cluster is None:
            cluster = _cluster(experiment, calibration, diagnostics)
        elif not calibration.clusters and experiment.network.emulate and experiment.network.emulate.rate:
            cluster = _at_nominal_rate(experiment.network, cluster, diagnostics)
        prediction = predict(calibration.applied(_setup(experiment, cluster, stack)))
    except WirecostError as error:
        return PredictedExperiment(experiment, None, str(error))
    network = prediction.breakdown.network
    assert network is not None
    name, emulated = experiment.network.name, experiment.network.emulate is not None
    breakdown = prediction.breakdown.model_copy(
        update={
            "title": experiment.slug,
            "network": network.model_copy(update={"name": name, "emulated": emulated}),
            "diagnostics": (*prediction.breakdown.diagnostics, *diagnostics),
        }
    )
    return PredictedExperiment(experiment, replace(prediction, breakdown=breakdown))


def _setup(experiment: Experiment, cluster: Cluster, stack: Stack | None) -> Setup:
    placed: dict[str, Any] = {"gpus_per_node": experiment.ranks_per_host, "nodes": experiment.hosts}
    if experiment.network.emulate is not None:
        placed["nics_per_node"] = 1
    if stack is not None and may_replay(experiment):
        # The host launches a graph in place of every kernel.
        none: dict[str, float] = dict.fromkeys(LAUNCH_TIMES, 0.0)
        stack = stack.model_copy(update={"host": stack.host.model_copy(update=none)})
    return setup(
        experiment.workload,
        experiment.plan,
        cluster.model_copy(update=placed),
        stack=stack,
        gpus=experiment.ranks,
        micro_batch=experiment.micro_batch,
        global_batch=experiment.global_batch,
    )


def _stack(experiment: Experiment, calibration: Calibration) -> Stack:
    precision = experiment.plan.precision
    if not calibration.stacks:
        raise SpecError("nothing says on what to predict: a calibration of runs, or a cluster")
    if precision not in calibration.stacks:
        known = ", ".join(sorted(calibration.stacks))
        raise SpecError(f"precision {precision} was not calibrated, {known} was: add a run of it")
    return calibration.stacks[precision]


def _cluster(experiment: Experiment, calibration: Calibration, diagnostics: list[Diagnostic]) -> Cluster:
    network = experiment.network
    if not calibration.clusters:
        raise SpecError("nothing says on what to predict: a calibration of runs, or a cluster")
    if network.name in calibration.clusters:
        return calibration.clusters[network.name]
    if experiment.ranks == 1:  # it sends nothing over its network
        return next(iter(calibration.clusters.values()))
    if network.emulate is None or network.emulate.rate is None:
        raise SpecError(
            f"network '{network.name}' was not benchmarked and states no rate; benchmarked: "
            f"{', '.join(sorted(calibration.clusters))}"
        )
    return _at_nominal_rate(network, next(iter(calibration.clusters.values())), diagnostics)


def _at_nominal_rate(network: Network, cluster: Cluster, diagnostics: list[Diagnostic]) -> Cluster:
    assert network.emulate is not None
    rate = network.emulate.rate
    assert rate is not None
    diagnostics.append(
        diagnostic(
            "not_benchmarked",
            f"network '{network.name}' was not benchmarked: its nominal {format_rate_bps(rate)} is used, "
            "less what protocols add",
        )
    )
    link = Link(
        name=network.name,
        rate=rate,
        interface_rate=BitsPerSecond(VETH_BPS),
        efficiency=PAYLOAD,
        source="nominal rate of the emulated network",
        provenance=Provenance.DERIVED,
        calibration="nominal rate less what Ethernet, IP and TCP add to a frame",
    )
    return cluster.model_copy(update={"inter_node": link, "network_efficiency": None, "name": network.name})


def write_predictions(
    predicted: Sequence[PredictedExperiment], study: Study, rests_on: dict[str, Any], folder: Path
) -> None:
    """Writes a study's predictions.

    Raises:
        SpecError: if the folder holds predictions or a study already, or can't be written.
    """
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
        "predicted": [p.experiment.slug for p in predicted if p.prediction],
        "refused": [{"cell": p.experiment.slug, "reason": p.refused} for p in predicted if not p.prediction],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(to_yaml(study), encoding="utf-8")
        for each in predicted:
            if each.prediction:
                text = each.prediction.breakdown.model_dump_json(indent=1)
                (folder / f"{each.experiment.slug}.json").write_text(text, encoding="utf-8")
        (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{folder}: can't be written: {error.strerror}") from error


def read_predictions(folder: Path) -> dict[str, Breakdown]:
    """Returns predicted breakdowns by the experiment's slug.

    Raises:
        SpecError: for a folder without predictions, or a damaged file.
    """
    if not (folder / INDEX).is_file():
        raise SpecError(
            f"{folder}: holds no predictions (there is no {INDEX}); `wirecost predict --study` writes them"
        )
    predictions = {}
    try:
        index = json.loads(read_result(folder / INDEX, SpecError))
        for slug in index["predicted"]:
            path = folder / f"{Path(str(slug)).name}.json"
            text = read_result(path, SpecError)
            predictions[str(slug)] = Breakdown.model_validate_json(text)
    except (RecursionError, ValueError, ValidationError, KeyError, TypeError) as error:
        raise SpecError(f"{folder}: damaged predictions: {' '.join(str(error).split())[:160]}") from error
    return predictions
