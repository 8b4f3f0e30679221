"""What-if answers on processors: each experiment of a study is asked about its other networks.

    PYTHONPATH=src python benchmarks/whatif_on_processors.py [--study FOLDER] [--csv FILE]

Runs two small GPTs with two bucket sizes on two ranks over three emulated networks (which needs root or user
namespaces, and about ten minutes), or reads the results in FOLDER if there are some. Prints a Markdown table with
what was measured.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from wirecost.spec import Study, parse_yaml, validate
from wirecost.study import Result, Store, run_study
from wirecost.study.loading import profiled
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.study_cells import is_study, question_between, read_cell, step_time_ns, study_networks

STUDY = """\
name: whatif-on-processors
workloads:
  - {name: gpt-4x256, family: gpt, layers: 4, hidden: 256, heads: 4, vocab_size: 2048, sequence_length: 32}
  - {name: gpt-2x512, family: gpt, layers: 2, hidden: 512, heads: 8, vocab_size: 2048, sequence_length: 32}
networks:
  - {name: emulated-300m, emulate: {rate: 300 Mb/s}}
  - {name: emulated-100m, emulate: {rate: 100 Mb/s}}
  - {name: emulated-50m, emulate: {rate: 50 Mb/s}}
plans:
  - {name: buckets-of-1-mib, data_parallel: ddp, bucket_bytes: 1048576}
  - {name: buckets-of-25-mib, data_parallel: ddp}
scaling: [{kind: weak, micro_batch: 1}]
hosts: [2]
iterations: 6
"""


@dataclass(frozen=True)
class Pair:
    """One answer beside its measurement, times in ms."""

    workload: str
    plan: str
    recorded_on: str
    plain_ms: float
    replay_error_percent: float
    asked: str
    measured_ms: float
    low_ms: float
    high_ms: float

    @property
    def inside(self) -> bool:
        return self.low_ms <= self.measured_ms <= self.high_ms


def pairs(folder: Path) -> list[Pair]:
    """Returns every answer about another network that the results in a folder allow."""
    done = [result for result in Store(folder).results() if step_time_ns(result) is not None]
    return [pair for base in done for pair in _of(folder, base, done)]


def _of(folder: Path, base: Result, done: list[Result]) -> list[Pair]:
    own = step_time_ns(base)
    job = Job(
        read_cell(base.directory, base.experiment.ranks),
        step_time_ns=own,
        networks=study_networks(folder, base.experiment),
    )
    found = []
    for other in done:
        question = question_between(base.experiment, other.experiment)
        if question is None or question.bucket_mib is not None or question.network is None:
            continue
        answer, measured = answer_to(job, question), step_time_ns(other)
        assert own is not None and measured is not None
        experiment = base.experiment
        found.append(
            Pair(
                experiment.workload.name, experiment.plan.name, experiment.network.name,  # pyright: ignore
                round(own * 1e-6, 1), round(100 * job.error, 2), question.network,
                round(measured * 1e-6, 1), round(answer.low_ms, 1), round(answer.high_ms, 1),
            )
        )  # fmt: skip
    return found


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """Writes records of one class, each as a line with its fields."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(rows[0]))
        writer.writerows(astuple(row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.study or Path(temporary) / "results"
        if not is_study(folder):
            run_study(profiled(validate(Study, parse_yaml(STUDY, "study"), "study")), folder)
        rows = pairs(folder)
    print("| job | recorded on | network | measured ms | said ms | |\n|---|---|---|---|---|---|")
    for p in rows:
        print(
            f"| {p.workload}, {p.plan} | {p.recorded_on} | {p.asked} | {p.measured_ms} "
            f"| {p.low_ms} to {p.high_ms} | {'inside' if p.inside else 'outside'} |"
        )
    worst = max(abs(p.replay_error_percent) for p in rows)
    print(f"\n{sum(p.inside for p in rows)} of {len(rows)} inside; replays within {worst} % of the recordings")
    if options.csv is not None:
        write_csv(options.csv, rows)


if __name__ == "__main__":
    main()
