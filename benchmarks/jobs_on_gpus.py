"""`wirecost run` on unchanged jobs on two GPUs, and what `wirecost whatif` predicts from their traces.

    PYTHONPATH=src python benchmarks/jobs_on_gpus.py traces  --out DIR --seconds 540 [--only hf-ddp,hf-fsdp2]
    PYTHONPATH=src python benchmarks/jobs_on_gpus.py predict --out DIR        # needs no GPU
    PYTHONPATH=src python benchmarks/jobs_on_gpus.py measure --out DIR --seconds 540
    PYTHONPATH=src python benchmarks/jobs_on_gpus.py report  --out DIR
    PYTHONPATH=src python benchmarks/jobs_on_gpus.py traces  --out DIR --device cpu --tiny    # does it run?

`traces` runs each job over two networks with some iterations under the profiler and prints the reported iteration
beside the job's own time in the same run, which should differ by at most 2 %. `predict` says from these traces
what every other network would give (DIR/predictions.csv): commit that before going on. `measure` runs the jobs
over the networks that have no result, and prints each prediction beside it. `report` prints all pairs and their
errors by kind of job. Each phase goes on where an earlier call stopped, and begins nothing that can't end in time.
`pack` and `unpack` make few small files in --files of DIR, and DIR of them. `--from DIR` takes the results and
predictions of another machine along. `--list` shows the runs and how long they take.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from jobs_list import CPU_NETWORKS, CPU_TRACED, JOBS, NETWORKS, TRACED, Run, runs
from jobs_pack import pack, unpack
from jobs_predictions import by_kind, pairs_of, predict_all, read_predictions, write_pairs
from jobs_runs import TOLERANCE, read_rows, row_of, start, write_rows
from lanes import all_gpus, card

from wirecost.study import Status

ROOT = Path(__file__).resolve().parents[1]
CALIBRATIONS = {
    "cuda": ROOT / "results/2026-11-29-two-h200-studies/calibration",
    "cpu": ROOT / "results/2026-11-28-two-cores-studies/calibration",
}
LEAST_S = 10.0
"""Shortest time that is left to a run."""


def say(line: str) -> None:
    print(line, flush=True)


def run_all(options: argparse.Namespace, todo: list[Run], deadline: float) -> int:
    """Runs what has no result yet, and prints a line for each run. Returns how many runs are not done."""
    path = options.out / "results.csv"
    rows, predictions = read_rows(path), read_predictions(options.out / "predictions.csv")
    name, missing = card(options.device), 0
    if options.device == "cuda" and len(all_gpus()) == 1:
        name += ", 2 ranks on 1 GPU"
    for run in todo:
        key = (run.job.name, run.network)
        if key in rows and rows[key].status == Status.DONE:
            say(f"{rows[key].text}  (had)")
            continue
        left_s = deadline - time.monotonic()
        if left_s < max(LEAST_S, run.seconds):
            say(
                f"{run.job.name:<12} {run.network:<18} not run: takes {run.seconds:.0f} s, {left_s:.0f} s are left"
            )
            missing += 1
            continue
        begun = time.monotonic()
        start(options.out, run, device=options.device, left_s=left_s - LEAST_S / 2)
        row = row_of(options.out, run, name)
        rows[key] = row
        write_rows(path, rows)
        missing += row.status != Status.DONE
        took_s = time.monotonic() - begun
        say(f"{row.text}  ({took_s:.0f} s, expected {run.seconds:.0f})")
        for pair in pairs_of([p for p in predictions if (p.job, p.network) == key], rows):
            say(f"    {pair.text}")
    mine = {(run.job.name, run.network) for run in todo}
    compared = [abs(r.difference) for key, r in rows.items() if key in mine and r.difference is not None]
    if compared:
        within = sum(d <= TOLERANCE for d in compared)
        largest = f"largest difference {max(compared):.2%}"
        say(f"{within} of {len(compared)} within {TOLERANCE:.0%} of the job's own time; {largest}")
    return missing


def report(out: Path) -> None:
    rows = read_rows(out / "results.csv")
    for row in rows.values():
        say(row.text)
    pairs = pairs_of(read_predictions(out / "predictions.csv"), rows)
    if pairs:
        write_pairs(out / "pairs.csv", pairs)
        say("\nPredicted from traces, beside the measured iteration:")
        for line in (*(pair.text for pair in pairs), "", *by_kind(pairs)):
            say(line)


def list_runs(todo: list[Run], rows: set[tuple[str, str]]) -> None:
    total = 0.0
    for run in todo:
        had = (run.job.name, run.network) in rows
        total += 0.0 if had else run.seconds
        say(
            f"{run.job.name:<12} {run.network:<18} {run.warmup} + {run.steps} + {run.profiled} iterations of "
            f"{run.iteration_s:.2f} s: {run.seconds:4.0f} s{' (had)' if had else ''}"
        )
    say(f"{total:.0f} s, in calls of 540 s at least {-(-total // 540):.0f}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=("traces", "predict", "measure", "report", "pack", "unpack"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--only", type=lambda text: text.split(","), help="jobs, with commas")
    parser.add_argument("--networks", type=lambda text: text.split(","), help="with commas, instead of all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, for checking that everything runs")
    parser.add_argument("--calibration", type=Path, help="of the networks [default: one of such a machine]")
    parser.add_argument("--from", dest="source", type=Path, help="a folder with results.csv and predictions.csv")
    parser.add_argument("--files", type=Path, help="folder of pack and unpack [default: OUT/packed]")
    parser.add_argument("--list", action="store_true", help="show the runs, and start nothing")
    options = parser.parse_args()
    names = [job.name for job in JOBS]
    options.only = options.only or names
    if unknown := set(options.only) - set(names):
        parser.error(f"no job {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    all_networks = list(CPU_NETWORKS if options.device == "cpu" else NETWORKS)
    options.networks = options.networks or all_networks
    if unknown := set(options.networks) - set(all_networks):
        parser.error(f"no network {', '.join(sorted(unknown))}; there are: {', '.join(all_networks)}")
    if options.tiny != (options.device == "cpu"):
        parser.error("--tiny and --device cpu go together")
    options.calibration = options.calibration or CALIBRATIONS[options.device]
    options.files = options.files or options.out / "packed"
    return options


def main() -> int:
    options = parsed()
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ("results.csv", "predictions.csv") if options.source else ():
        if (options.source / name).is_file() and not (options.out / name).exists():
            shutil.copy(options.source / name, options.out / name)
    if options.phase == "pack":
        left_out = pack(options.out, options.files, [job.name for job in JOBS if job.name in options.only])
        for path in sorted(options.files.iterdir()):
            say(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
        say(f"left out: {', '.join(left_out) or 'nothing'}")
        return 0
    if options.phase == "unpack":
        say(f"{unpack(options.files, options.out)} traces in {options.out}")
        return 0
    if options.phase == "report":
        report(options.out)
        return 0
    # They are imported when traces are read, after the first run.
    if missing := [name for name in ("isal", "zstandard") if find_spec(name) is None]:
        say(f"jobs_on_gpus: {', '.join(missing)} not installed, without which traces can't be read")
        return 2
    traced: list[str] = list(CPU_TRACED if options.device == "cpu" else TRACED)
    phase = "traces" if options.phase == "predict" else options.phase
    todo = runs(options.only, phase, options.networks, traced, tiny=options.tiny)
    if options.phase == "predict":
        all_networks: list[str] = list(CPU_NETWORKS if options.device == "cpu" else NETWORKS)
        predict_all(options.out, todo, all_networks, options.calibration, deadline, say)
        return 0
    reasons = {run.job.name: run.job.why_not(options.device) for run in todo}
    for name, reason in reasons.items():
        if reason is not None:
            say(f"{name:<12} skipped: {reason}")
    todo = [run for run in todo if reasons[run.job.name] is None]
    if options.list:
        had = read_rows(options.out / "results.csv")
        list_runs(todo, {key for key, row in had.items() if row.status == Status.DONE})
        return 0
    return 1 if run_all(options, todo, deadline) else 0


if __name__ == "__main__":
    sys.exit(main())
