"""What `wirecost calibrate` is given, told apart by its content: engine runs, benchmarks, traces, tables."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wirecost.breakdown import Breakdown, Source
from wirecost.calibration.network import FITTED_OPS, Bench, Measured
from wirecost.calibration.observed import Observed, from_engine, from_trace
from wirecost.collectives.readers.base import MAX_RANKS, check_rows
from wirecost.collectives.result import Row
from wirecost.errors import SpecError, WirecostError, shorten
from wirecost.load import load_breakdown
from wirecost.reading import read_bytes
from wirecost.spec import Experiment, Plan, Workload, load
from wirecost.units import parse_rate_bps

MAX_BYTES = 64 << 20
MOST_CORES = 1 << 16


@dataclass(frozen=True)
class Told:
    """What traces don't say and the user must."""

    workload: Workload | None = None
    plan: Plan | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    gpus_per_node: int | None = None


@dataclass
class Found:
    """Everything given, sorted. `skipped` says what was left out, and why."""

    runs: list[Observed] = field(default_factory=list)
    benches: list[Bench] = field(default_factory=list)
    seen: list[Measured] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def gather(paths: Sequence[Path], told: Told, *, ranks: int | None = None) -> Found:
    """Reads everything. `ranks`: take only runs of so many ranks from result stores.

    Raises:
        WirecostError: for what can't be read, naming it.
    """
    found = Found()
    for path in paths:
        if path.suffix == ".csv":
            found.tables.append(path)
        elif (path / "experiments").is_dir():
            _from_store(path, found, ranks)
        elif (path / "experiment.yaml").is_file():
            _from_experiment(path, found)
        elif (bench := read_bench(path)) is not None:
            found.benches.append(bench)
        else:
            _from_breakdown(path, found, told)
    return found


def _from_store(root: Path, found: Found, ranks: int | None) -> None:
    from wirecost.study import Store
    from wirecost.study.manifest import CheckedFiles, DamageError

    contents = Store(root).contents()
    found.skipped += [f"{root}: left out: {remark}" for remark in contents.remarks()]
    other = 0
    for result in contents.results:
        if ranks is not None and result.experiment.ranks != ranks:
            other += 1
            continue
        if result.breakdown is None:
            found.skipped.append(f"{result.directory.name}: {result.outcome.status}")
            continue
        try:
            _add(result.experiment, result.breakdown, result.directory, found)
        except SpecError as error:
            found.skipped.append(f"{result.directory.name}: {error}")
    if other:
        found.skipped.append(f"{root}: {other} runs of other than {ranks} ranks")
    # A study benchmarks its networks before it trains over them.
    for path in sorted(root.glob("networks/*/bench.json")):
        try:
            CheckedFiles(path.parent, path.parent.name).read(path.name)
            bench = read_bench(path)
        except (DamageError, SpecError) as error:
            found.skipped.append(f"{path.parent}: left out: {error}")
            continue
        if bench is not None and ranks in (None, bench.hosts * bench.ranks_per_host):
            found.benches.append(bench)


def _from_experiment(directory: Path, found: Found) -> None:
    path = directory / "breakdown.json"
    if not path.is_file():
        raise SpecError(
            f"{directory}: holds no result (there is no breakdown.json): the experiment did not finish"
        )
    breakdown = load_breakdown(str(path))
    _add(load(Experiment, directory / "experiment.yaml"), breakdown, directory, found)


def _add(experiment: Experiment, breakdown: Breakdown, directory: Path, found: Found) -> None:
    path = directory / "environment.json"
    try:
        text = read_bytes(path, most_bytes=MAX_BYTES, pipes=False, error=SpecError) if path.exists() else b"{}"
        environment: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: can't be read as JSON") from error
    _check_environment(environment, path)
    run = from_engine(experiment, breakdown, environment, directory.name)
    if run is None:
        found.skipped.append(f"{directory.name}: compute and communication overlap or mix in it")
    else:
        found.runs.append(run)


def _check_environment(environment: object, path: Path) -> None:
    """Raises SpecError unless what is read of an environment has the type and size that it can have."""
    if not isinstance(environment, dict):
        raise SpecError(f"{path}: isn't a description of an environment")
    for key, most in (("cores", MOST_CORES), ("machine_cores", MOST_CORES), ("memory_bytes", 2**60)):
        value = environment.get(key)
        if value is not None and not (
            isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
        ):
            raise SpecError(f"{path}: {key}: a whole number from 1 to {most}, not {shorten(value)}")
    gpus, processor = environment.get("gpus") or [], environment.get("processor")
    if not isinstance(gpus, list) or not all(isinstance(name, str) for name in [*gpus, processor or ""]):
        raise SpecError(f"{path}: gpus and processor: names")


def _from_breakdown(path: Path, found: Found, told: Told) -> None:
    breakdown = load_breakdown(str(path))
    if breakdown.source is Source.PREDICTED:
        raise SpecError(f"{path}: is a prediction: a calibration takes what was measured")
    if breakdown.source is Source.MEASURED and told.workload is None:
        raise SpecError(
            f"{path}: a breakdown alone doesn't say what ran: give the experiment's directory, with its "
            "experiment.yaml, or --workload, --plan and --micro-batch"
        )
    run = from_trace(
        breakdown,
        path.name,
        workload=told.workload,
        plan=told.plan,
        micro_batch=told.micro_batch,
        global_batch=told.global_batch,
        gpus_per_node=told.gpus_per_node,
    )
    found.runs.append(run)
    for one in breakdown.collectives:
        time = one.transfer_ns if one.transfer_ns is not None else one.duration_ns
        if one.op in FITTED_OPS and one.bytes and one.group_size and one.group_size > 1 and time:
            # Calls of one kind are summed: their mean size and time lie on the same straight line.
            hosts = max(1, one.group_size // (told.gpus_per_node or one.group_size))
            size, seconds = one.bytes / one.count, time / one.count * 1e-9
            found.seen.append(Measured(one.op, one.group_size, hosts, 1, size, seconds))


def read_bench(path: Path) -> Bench | None:
    """A `wirecost bench --format json` document; None where the file is something else.

    Raises:
        SpecError: for one that is damaged, or lies to itself.
    """
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        data = json.loads(read_bytes(path, most_bytes=MAX_BYTES, pipes=False, error=SpecError))
    except (WirecostError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "rows" not in data or "fits" not in data:
        return None
    try:
        rows = tuple(Row.model_validate_json(json.dumps(row)) for row in data["rows"])
        check_rows(rows, str(path))
        rows = _as_trained(rows, data.get("request") or {})
        request, network = data.get("request"), data.get("network") or {}
        if request is None:
            # Read from another tool's output: on how many hosts it ran is all that may be known.
            hosts = {one.get("hosts") for one in data["read"]}
            most = max((row.ranks for row in rows), default=1)
            host = _count("read.hosts", hosts.pop() or 1) if len(hosts) == 1 else 1
            return Bench(str(path), "benchmarked", None, host, max(1, most // host), 1, None, False, rows)
        shape = request["network"].get("emulate") or {}
        nominal = network.get("nominal_rate_bps")
        rate = _rate_bps(nominal) if nominal else parse_rate_bps(shape["rate"]) if shape.get("rate") else None
        emulated = network.get("emulated")
        if emulated is not None and not isinstance(emulated, bool):
            raise ValueError(f"network.emulated: true or false, not {shorten(emulated)}")
        return Bench(
            path=str(path),
            network=_name(network.get("name") or request["network"]["name"]),
            emulated=emulated,
            hosts=_count("request.hosts", request["hosts"]),
            ranks_per_host=_count("request.ranks_per_host", request["ranks_per_host"]),
            rings=_count("request.groups", len(request["groups"])),
            rate_bps=rate,
            medians=request["backend"] != "nccl",
            rows=rows,
        )
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{path}: no sound benchmark: {' '.join(str(error).split())[:160]}") from error


def _count(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_RANKS:
        return value
    raise ValueError(f"{key}: a whole number from 1 to {MAX_RANKS}, not {shorten(value)}")


def _rate_bps(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1e18:
        return float(value)
    raise ValueError(f"network.nominal_rate_bps: a rate from 1 to 1e18 bits per second, not {shorten(value)}")


def _name(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}", value):
        return value
    raise ValueError(f"network.name: letters, digits and . _ + -, not {shorten(value)}")


def _as_trained(rows: tuple[Row, ...], request: dict[str, Any]) -> tuple[Row, ...]:
    """Gloo's own reduce-scatter is an all-reduce of which a part is kept, twice the bytes. The engine exchanges
    the parts and sums them instead (`wirecost.train.communicator`): the all-to-all's rows stand for that."""
    if request.get("backend") != "gloo":
        return rows
    kept = [row for row in rows if row.collective != "reduce_scatter"]
    exchanged = [
        row.model_copy(update={"collective": "reduce_scatter"}) for row in rows if row.collective == "all_to_all"
    ]
    return (*kept, *exchanged)
