"""Predicts each source of published iteration times by a fit to all other sources.

    python benchmarks/leave_one_out.py REFERENCE [--only TABLE ...] [--json FILE]

A source is a table. Tables that share a code base or a cluster are left out together. The stacks, GPUs and links
of all others are fitted together (`wirecost.calibration.hierarchy`), and the properties of what only the source
has are the means of its kind. For each source the program prints the number of rows, the mean absolute error as
fitted and left out, the bias, and the share of rows inside their 90 % interval.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wirecost.calibration.hierarchy import Posterior, Sources, fit_sources, predict
from wirecost.calibration.inputs.rows import TableRow, iteration_rows
from wirecost.calibration.inputs.table import TableKind, kind_of, read_table
from wirecost.prediction.interval import row_spread

OWN = Path(__file__).resolve().parent / "data" / "h100_one_gpu.csv"
NOT_JUDGED = ("h100_one_gpu",)
"""Tables that are fitted to but not judged: one GPU, measured with the model in mind."""
SIBLINGS = (
    ("megatron_sc21", "korthikanti2022_tab5", "mtnlg"),
    ("vtrain_a100_single", "vtrain_a100_multi"),
    ("dgxc2411_dense", "dgxc2502_dense", "nemo24_h100", "nemo2407_h100"),
    ("mlperf_gpt3", "mlperf_llama8b"),
    ("mb25_dense", "mb25_moe", "megatron_bridge"),
    ("internevo", "internevo_full"),
)
ROUNDS = 6
"""Rounds of each fit, which starts from the fit to all sources."""


@dataclass
class Judged:
    """A source with the errors of its rows: predicted / measured - 1."""

    name: str
    fitted: np.ndarray
    left_out: np.ndarray
    logs: np.ndarray
    spreads: np.ndarray

    @property
    def error(self) -> float:
        return float(np.mean(np.abs(self.left_out)))

    @property
    def coverage(self) -> float:
        return float(np.mean(np.abs(self.logs) <= self.spreads))


def read_sources(reference: Path) -> Sources:
    """Returns the rows of all tables of iteration times of a folder, and the benchmarks' own."""
    rows: list[TableRow] = []
    labels: list[str] = []
    for path in (*sorted((reference / "measured").glob("*.csv")), OWN):
        table = read_table(path)
        if kind_of(table) is not TableKind.ITERATIONS:
            continue
        parsed = iteration_rows(table).rows
        rows += parsed
        labels += [path.stem] * len(parsed)
    return Sources(rows, labels)


def fitted_rows(sources: Sources) -> np.ndarray:
    """Returns which rows are fitted: not those that only name their model, which don't say what they recompute."""
    return np.array(["model" not in row.assumed for row in sources.rows])


def left_out_together(names: list[str]) -> list[tuple[str, ...]]:
    """Returns the tables in the groups in which they are left out."""
    groups: list[tuple[str, ...]] = []
    for name in names:
        group = next((siblings for siblings in SIBLINGS if name in siblings), (name,))
        if group not in groups:
            groups.append(group)
    return groups


def judge(sources: Sources, everything: Posterior, group: tuple[str, ...]) -> list[Judged]:
    """Returns the errors of the tables of a group under a fit without them."""
    mask = np.isin(sources.labels, group)
    posterior = fit_sources(sources, ~mask & fitted_rows(sources), everything.x, ROUNDS)
    logs, _ = predict(sources, posterior, mask)
    fitted, _ = predict(sources, everything, mask)
    own = sources.labels[mask]
    stacks = {row.key.stack for row, left in zip(sources.rows, mask, strict=True) if not left}
    gpus = {row.key.gpu for row, left in zip(sources.rows, mask, strict=True) if not left}
    links = {row.key.inter for row, left in zip(sources.rows, mask, strict=True) if not left}
    rows = [row for row, left in zip(sources.rows, mask, strict=True) if left]
    spreads = np.array(
        [
            row_spread(row, fitted=(row.key.stack in stacks, row.key.gpu in gpus, row.key.inter in links))
            for row in rows
        ]
    )
    return [
        Judged(
            name,
            np.expm1(fitted[own == name]),
            np.expm1(logs[own == name]),
            logs[own == name],
            spreads[own == name],
        )
        for name in group
        if (own == name).any()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.process_time()
    sources = read_sources(options.reference)
    everything = fit_sources(sources, fitted_rows(sources))
    fitted, spent_s = int(fitted_rows(sources).sum()), time.process_time() - began
    print(f"{len(sources.rows)} rows, {fitted} fitted, {len(everything.levels)} levels, {spent_s:.0f} s of CPU")
    print(f"{'source':22s} {'rows':>5s} {'fitted':>8s} {'left out':>9s} {'bias':>8s} {'inside':>7s}", flush=True)
    judged: list[Judged] = []
    for group in left_out_together([str(name) for name in np.unique(sources.labels)]):
        if options.only and not set(options.only) & set(group):
            continue
        for source in judge(sources, everything, group):
            print(
                f"{source.name:22s} {len(source.logs):5d} {100 * np.abs(source.fitted).mean():6.1f} % "
                f"{100 * source.error:7.1f} % {100 * source.left_out.mean():+6.1f} % "
                f"{100 * source.coverage:5.0f} %",
                flush=True,
            )
            judged.append(source)
    scored = [source for source in judged if source.name not in NOT_JUDGED]
    worst = max(scored, key=lambda source: source.error)
    print(
        f"mean over {len(scored)} sources: {100 * np.mean([s.error for s in scored]):.1f} % left out, "
        f"{100 * np.mean([np.abs(s.fitted).mean() for s in scored]):.1f} % as fitted; worst {worst.name} "
        f"{100 * worst.error:.1f} %; inside the interval {100 * np.mean([s.coverage for s in scored]):.0f} %; "
        f"{time.process_time() - began:.0f} s of CPU"
    )
    if options.json:
        data = {s.name: {"left_out": s.logs.tolist(), "spread": s.spreads.tolist()} for s in judged}
        options.json.write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
