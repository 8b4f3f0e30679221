"""What `wirecost calibrate` is given, told apart by its content: engine runs, benchmarks, traces, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirecost.breakdown import Breakdown, Source
from wirecost.calibration.inputs.benchmarks import MAX_BYTES, Bench, Measured, read_bench
from wirecost.calibration.inputs.mistaken import no_finished_run, refuse_mistaken
from wirecost.calibration.inputs.runs import Environment, Observed, from_engine
from wirecost.calibration.inputs.traces import TraceOptions, collectives_of, from_trace
from wirecost.comparison.sources import load_breakdown
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import SpecError
from wirecost.reading import read_bytes
from wirecost.spec import Experiment, JobExperiment, load, validate


@dataclass
class Inputs:
    """Everything given, sorted. `collectives` are those of traces; `diagnostics` name what was left out."""

    runs: list[Observed] = field(default_factory=list)
    benches: list[Bench] = field(default_factory=list)
    collectives: list[Measured] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def gather(paths: Sequence[Path], options: TraceOptions, *, ranks: int | None = None) -> Inputs:
    """Reads everything. `ranks`: from result stores take only runs of so many ranks.

    Raises:
        WirecostError: for what can't be read, naming it.
    """
    inputs = Inputs()
    for path in paths:
        if path.suffix == ".csv":
            inputs.tables.append(path)
        elif (path / "experiments").is_dir():
            _from_store(path, inputs, ranks)
        elif (path / "experiment.yaml").is_file():
            _from_experiment(path, inputs)
        elif (bench := read_bench(path)) is not None:
            inputs.benches.append(bench)
        else:
            refuse_mistaken(path)
            _from_breakdown(path, inputs, options)
    return inputs


def _from_store(root: Path, inputs: Inputs, ranks: int | None) -> None:
    from wirecost.study import Store

    contents = Store(root).contents()
    inputs.diagnostics += contents.diagnostics()
    if not contents.results and not contents.damaged:
        inputs.diagnostics.append(_left_out(str(root), no_finished_run(root)))
    other = 0
    for result in contents.results:
        experiment = result.experiment
        if isinstance(experiment, JobExperiment):
            inputs.diagnostics.append(_left_out(result.directory.name, "a command: its model is unknown"))
            continue
        if ranks is not None and experiment.ranks != ranks:
            other += 1
            continue
        if result.breakdown is None:
            inputs.diagnostics.append(_left_out(result.directory.name, f"{result.outcome.status}"))
            continue
        try:
            _add(experiment, result.breakdown, result.directory, inputs)
        except SpecError as error:
            inputs.diagnostics.append(_left_out(result.directory.name, f"{error}"))
    if other:
        inputs.diagnostics.append(_left_out(str(root), f"{other} runs of other than {ranks} ranks"))
    _add_benches(root, inputs, ranks)


def _add_benches(root: Path, inputs: Inputs, ranks: int | None) -> None:
    """Adds the benchmarks of a study's networks, which ran before it trained over them."""
    from wirecost.study.manifest import CheckedFiles, DamageError

    for path in sorted(root.glob("networks/*/bench.json")):
        try:
            CheckedFiles(path.parent, path.parent.name).read(path.name)
            bench = read_bench(path)
        except (DamageError, SpecError) as error:
            inputs.diagnostics.append(_left_out(str(path.parent), f"{error}"))
            continue
        if bench is not None and ranks in (None, bench.hosts * bench.ranks_per_host):
            inputs.benches.append(bench)


def _from_experiment(directory: Path, inputs: Inputs) -> None:
    path = directory / "breakdown.json"
    if not path.is_file():
        raise SpecError(
            f"{directory}: holds no result (there is no breakdown.json): the experiment did not finish"
        )
    breakdown = load_breakdown(str(path))
    _add(load(Experiment, directory / "experiment.yaml"), breakdown, directory, inputs)


def _add(experiment: Experiment, breakdown: Breakdown, directory: Path, inputs: Inputs) -> None:
    environment = _environment(directory / "environment.json")
    run = from_engine(experiment, breakdown, environment, directory.name)
    if run is None:
        inputs.diagnostics.append(_left_out(directory.name, "compute and communication overlap or mix in it"))
    else:
        inputs.runs.append(run)


def _environment(path: Path) -> Environment:
    if not path.exists():
        return Environment()
    text = read_bytes(path, most_bytes=MAX_BYTES, pipes=False, error=SpecError)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: can't be read as JSON") from error
    return validate(Environment, data, str(path))


def _from_breakdown(path: Path, inputs: Inputs, options: TraceOptions) -> None:
    breakdown = load_breakdown(str(path))
    if breakdown.source is Source.PREDICTED:
        raise SpecError(f"{path}: is a prediction: a calibration takes what was measured")
    if breakdown.source is Source.MEASURED and options.workload is None:
        raise SpecError(
            f"{path}: a breakdown alone doesn't say what ran: give the experiment's directory, with its "
            "experiment.yaml, or --workload, --plan and --micro-batch"
        )
    inputs.runs.append(from_trace(breakdown, path.name, options))
    inputs.collectives += collectives_of(breakdown, options.gpus_per_node)


def _left_out(name: str, reason: str) -> Diagnostic:
    return diagnostic("input_left_out", reason, subject=name)
