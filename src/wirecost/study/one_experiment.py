"""Runs one experiment, and publishes its result."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from wirecost.diagnostics import diagnostic
from wirecost.launch.rendezvous import PORT_OF
from wirecost.launch.supervision import await_end
from wirecost.spec import AnyExperiment, JobExperiment
from wirecost.storage import StorageError, check_room, write_file
from wirecost.study.allocation import MACHINES, STEP
from wirecost.study.elsewhere import HOW
from wirecost.study.environment import describe_environment
from wirecost.study.judge import judge
from wirecost.study.networks import Site, why_not
from wirecost.study.processes import Cells
from wirecost.study.progress import Watch
from wirecost.study.store import Outcome, Status, Store

POLL_S = 0.1
SET_UP_S = 300.0
"""Time beyond the experiment's timeout for its process to load libraries and measure its network."""


def run_one(
    store: Store,
    experiment: AnyExperiment,
    cells: Cells,
    watch: Watch,
    tokens: Path | None,
    *,
    launcher: tuple[str, str] | None = None,
) -> Outcome:
    """Runs and publishes an experiment.

    Args:
        launcher: name and content of the file that says which other launcher starts its ranks.

    Raises:
        StorageError, StoreError, OSError: if any process can't write or read a file; nothing is published.
    """
    try:
        return _run_and_publish(store, experiment, cells, watch, tokens, launcher)
    except (StorageError, OSError):
        store.discard(experiment)  # it is useless and takes space
        raise


def _run_and_publish(
    store: Store,
    experiment: AnyExperiment,
    cells: Cells,
    watch: Watch,
    tokens: Path | None,
    launcher: tuple[str, str] | None,
) -> Outcome:
    directory = store.begin(experiment)
    if launcher is not None:
        write_file(directory / launcher[0], launcher[1])
    environment = describe_environment()
    write_file(directory / "environment.json", json.dumps(environment, indent=1))
    if tokens is not None:
        write_file(directory / "tokens.json", json.dumps({"path": str(tokens.resolve())}))
    log_path = directory / "logs" / "cell.log"
    started = time.monotonic()
    emulated = experiment.network.emulate is not None
    # Ranks that another launcher starts load PyTorch themselves.
    forked = launcher is None and not isinstance(experiment, JobExperiment)
    with (
        log_path.open("wb") as log,
        cells.start(directory, network=emulated, output=log, forked=forked) as cell,
    ):
        ended = await_end(
            cell,
            lambda: _look(watch, directory, store),
            every_s=POLL_S,
            limit_s=float(experiment.timeout) + SET_UP_S,
            server=lambda: cells.server,
        )
    if isinstance(ended, str):
        outcome, breakdown = Outcome(status=Status.FAILED, reason=f"the experiment {ended}"), None
    else:
        outcome, breakdown = judge(experiment, directory, ended, environment["cores"])
    if breakdown and (why := why_not(store, Site.of(experiment))):
        message = f"the benchmark of {experiment.network.name} before training failed: {why}"
        diagnostics = (*breakdown.diagnostics, diagnostic("network_not_benchmarked", message))
        breakdown = breakdown.model_copy(update={"diagnostics": diagnostics})
    outcome = outcome.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
    for leftover in ("experiment.json", "tokens.json", "outcome.json", STEP, MACHINES, HOW):
        (directory / leftover).unlink(missing_ok=True)
    for port in directory.glob(f"{PORT_OF}*"):
        port.unlink(missing_ok=True)
    shutil.rmtree(directory / "dumps", ignore_errors=True)
    store.publish(experiment, outcome, breakdown)
    return outcome


def _look(watch: Watch, directory: Path, store: Store) -> None:
    """Reports progress and checks for a full disk, because a process that can't write may be unable to report it.

    Raises:
        StorageError: if the store's file system is full or read-only.
    """
    # The recording of a command's first rank has a line for each iteration.
    steps = sorted((directory / "steps").glob("*.jsonl"))
    watch.look(steps[0] if steps else directory / "samples" / "rank-0.jsonl")
    check_room(store.root)


def skip(store: Store, experiment: AnyExperiment, reason: str) -> Outcome:
    """Publishes that an experiment was skipped, and why."""
    directory = store.begin(experiment)
    write_file(directory / "environment.json", json.dumps(describe_environment(), indent=1))
    (directory / "experiment.json").unlink()
    outcome = Outcome(status=Status.SKIPPED, reason=reason)
    store.publish(experiment, outcome, None)
    return outcome
