"""A study's store made of invented results, for tests of what reads it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from wirecost.breakdown import Breakdown, Collective, Iteration, NetworkRecord, Parts, Phase, Source
from wirecost.diagnostics import diagnostic
from wirecost.spec import Experiment, Study, parse_yaml, validate
from wirecost.study import Status, Store
from wirecost.study.manifest import write_manifest
from wirecost.study.store import Outcome

STUDY = """\
name: invented
workloads:
  - {name: small, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}
  - {name: large, layers: 2, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}
networks: [emulated-100m, emulated-1g]
plans: [all-reduce]
hosts: [2, 4]
scaling: [{kind: strong, global_batch: 16}, {kind: weak, micro_batch: 4}]
"""

MS = 1_000_000
COMPUTE_MS = 40


def invented_breakdown(e: Experiment, *, stretch: float = 1.0) -> Breakdown:
    """Returns a breakdown of 40 ms of compute and an all-reduce of 1 MB, `stretch` times as long as its rate
    implies.
    """
    assert e.network.emulate is not None
    assert e.network.emulate.rate is not None
    rate = 0.99 * e.network.emulate.rate
    expected = round(2 * (e.ranks - 1) / e.ranks * 8e6 / rate * 1e9)
    transfer = round(expected * stretch)
    iterations = []
    for n in range(4):
        comm = transfer + n * 1000
        parts = Parts(
            window_ns=COMPUTE_MS * MS + comm, compute_only_ns=COMPUTE_MS * MS, overlapped_ns=0,
            exposed_comm_ns=comm, exposed_memory_ns=0, idle_ns=0,
        )  # fmt: skip
        phases = {Phase.FORWARD: 15 * MS, Phase.BACKWARD: 25 * MS, Phase.GRAD_SYNC: comm, Phase.OTHER: 0}
        iterations += [
            Iteration(rank=r, name=str(n), parts=parts, phases=phases, loss=5 - n / 10) for r in range(e.ranks)
        ]
    collectives = [
        Collective(
            rank=r, op="all_reduce", group="data_parallel", group_size=e.ranks, count=4, bytes=4_000_000,
            duration_ns=4 * transfer, wait_ns=0, transfer_ns=4 * transfer, transfer_median_ns=transfer,
            expected_ns=4 * expected,
        )
        for r in range(e.ranks)
    ]  # fmt: skip
    return Breakdown(
        source=Source.MEASURED,
        title=e.slug,
        world_size=e.ranks,
        iterations=tuple(iterations),
        collectives=tuple(collectives),
        network=NetworkRecord(
            name=e.network.name,
            emulated=True,
            transport="tcp",
            nominal_rate_bps=e.network.emulate.rate,
            measured_rate_bps=rate,
        ),
        tokens_per_iteration=e.tokens_per_iteration,
        diagnostics=(diagnostic("shared_cores", "ranks <share> cores"),) if e.ranks > 2 else (),
    )


def _of_repeat(experiment: Experiment, disturbed: Collection[int]) -> Breakdown:
    """Returns an invented breakdown whose transfers are 1 % longer in each further repeat."""
    breakdown = invented_breakdown(experiment, stretch=1 + 0.01 * (experiment.repeat - 1))
    if experiment.repeat not in disturbed:
        return breakdown
    busy = diagnostic("busy_machine", "other programs kept the processors busy")
    return breakdown.model_copy(update={"diagnostics": (*breakdown.diagnostics, busy)})


def invented_store(
    root: Path,
    *,
    outcomes: dict[int, Outcome] | None = None,
    text: str = STUDY,
    disturbed: Collection[int] = (),
) -> Store:
    """Returns a store in which every experiment is done, except those whose number is in `outcomes`.

    Args:
        disturbed: repeats in which other programs kept the processors busy.
    """
    study = validate(Study, parse_yaml(text, "study"), "study")
    store = Store(root)
    with store.locked():
        store.save_study(study)
        for number, experiment in enumerate(study.experiments()):
            assert isinstance(experiment, Experiment)
            outcome = (outcomes or {}).get(number, Outcome(status=Status.DONE, seconds=1.0))
            directory = store.begin(experiment)
            (directory / "experiment.json").unlink()
            (directory / "environment.json").write_text(json.dumps({"cores": 2, "packages": {"torch": None}}))
            done = outcome.status is Status.DONE
            store.publish(experiment, outcome, _of_repeat(experiment, disturbed) if done else None)
    return store


def replace_breakdown(directory: Path, data: dict[str, Any]) -> None:
    """Replaces the breakdown of a finished experiment, as if the other had been stored."""
    (directory / "breakdown.json").write_text(json.dumps(data))
    write_manifest(directory, directory.name)
