"""A study finds the largest micro-batch that fits into the memory of a rank, which an emulated limit states."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.report import read_report
from wirecost.report.largest_batch import largest_batches
from wirecost.spec import Experiment, Study, parse_yaml, validate
from wirecost.study import Status, run_study

pytestmark = [pytest.mark.needs_root, pytest.mark.slow]

STUDY = """\
name: largest
workloads: [{name: nano, layers: 4, hidden: 256, heads: 4, vocab_size: 2048, sequence_length: 128}]
networks:
  - {name: fast, emulate: {rate: 2 Gb/s}}
  - {name: slow, emulate: {rate: 1 Gb/s}}
plans: [all-reduce]
hosts: [2]
scaling: [{kind: max-batch, memory: 700 MiB}]
iterations: 1
warmup: 1
benchmark: false
"""


def test_the_largest_batch_is_found_within_four_trials_and_trained_over_every_network(tmp_path: Path) -> None:
    study = validate(Study, parse_yaml(STUDY, "study"), "study")
    results = run_study(study, tmp_path / "out")
    trials = [r for r in results if r.experiment.network.name == "fast"]
    others = [r for r in results if r.experiment.network.name == "slow"]
    assert 2 <= len(trials) <= 4
    assert {r.outcome.status for r in trials} == {Status.DONE, Status.OOM}
    for result in trials:
        if result.outcome.status is Status.OOM:
            # The emulated memory ran out, and not that of the machine.
            assert result.outcome.memory is not None
            assert result.outcome.memory.peak_bytes is not None
            assert result.outcome.memory.peak_bytes < 800 << 20
    (row,) = largest_batches(read_report(tmp_path / "out"))
    assert row.largest is not None and row.smallest_oom is not None
    assert row.largest >= 0.7 * row.smallest_oom
    # A batch at the very limit may run out of memory in the next run; the next smaller one is taken then.
    done = [r.experiment for r in others if r.outcome.status is Status.DONE]
    assert [e.micro_batch for e in done if isinstance(e, Experiment)] == [row.largest]
    # Going on finds nothing that is left to do.
    again = run_study(study, tmp_path / "out", resume=True)
    assert [r.directory for r in again] == [r.directory for r in results]
