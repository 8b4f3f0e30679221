"""Runs of `jobs_on_gpus.py`: `wirecost run` of a job over a network, beside the job's own times in the same run.

DIR/runs/JOB/NET    results over a network, as `wirecost run --out` keeps them
DIR/own/            the jobs' own times
DIR/logs/           output of the runs
DIR/results.csv     a line for each run
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from jobs_list import LINE_TPS, TORCHTITAN_TOKENS, Run

from wirecost.breakdown import Share
from wirecost.report.job_rows import job_rows
from wirecost.spec import JobExperiment
from wirecost.study import Result, Status, Store
from wirecost.study.result import read_result

TOLERANCE = 0.02
WIRECOST = [sys.executable, "-m", "wirecost"]
GRACE_S = 15.0
"""Time in which an interrupted run cleans up."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of results.csv. Times are medians in ms; an empty text is unknown.

    Attributes:
        own_ms: by the job's own clock, on its slowest rank.
        same_ms: of the same iterations, as they were measured. It may lack the last one of `reported_ms`.
        reported_ms: as `wirecost run` prints it.
    """

    date: str
    card: str
    job: str
    kind: str
    network: str
    status: str
    iterations: str = ""
    own_ms: str = ""
    same_ms: str = ""
    reported_ms: str = ""
    reported_q1_ms: str = ""
    reported_q3_ms: str = ""
    exposed_low: str = ""
    exposed_high: str = ""
    transport: str = ""
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Measured over own time, less 1; None if one is unknown."""
        return float(self.same_ms) / float(self.own_ms) - 1 if self.own_ms and self.same_ms else None

    @property
    def text(self) -> str:
        head = f"{self.job:<12} {self.network:<18}"
        if self.status != Status.DONE:
            return f"{head} {self.status}: {self.reason}"
        beside = "own time unknown"
        if self.difference is not None:
            verdict = "within" if abs(self.difference) <= TOLERANCE else "BEYOND"
            times = f"own {float(self.own_ms):8.1f} ms  measured {float(self.same_ms):8.1f} ms"
            beside = f"{times} {self.difference:+6.2%} {verdict} {TOLERANCE:.0%}"
        exposed = ""
        if self.exposed_low:
            exposed = f"  exposed {float(self.exposed_low):.0%} to {float(self.exposed_high):.0%}"
        return (
            f"{head} {beside}  reported {float(self.reported_ms):8.1f} ms  n = {self.iterations}  "
            f"{self.transport or 'transport unknown'}{exposed}"
        )


def read_rows(path: Path) -> dict[tuple[str, str], Row]:
    """Returns the lines of a results.csv by job and network; none if there is no such file."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Row(**line) for line in csv.DictReader(file)]
    return {(row.job, row.network): row for row in rows}


def write_rows(path: Path, rows: dict[tuple[str, str], Row]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Row))
        writer.writerows(dataclasses.astuple(row) for row in rows.values())
    partial.replace(path)


def result_of(out: Path, run: Run) -> Result | None:
    """Returns the stored result of a run; of several, one with traces, else the newest. None without one."""
    found: list[Result] = []
    store = Store(out / "runs" / run.job.name / run.network)
    if store.experiments.is_dir():
        for path in sorted(store.experiments.iterdir(), key=lambda path: path.stat().st_mtime):
            if path.name[0] != "." and (path / "status.json").is_file():
                result = read_result(path, path.name)
                if result.experiment.network.name == run.network:
                    found.append(result)
    found.sort(key=lambda r: (r.outcome.status is Status.DONE, (r.directory / "traces").is_dir()))
    return found[-1] if found else None


def own_times_s(out: Path, run: Run, result: Result) -> list[float]:
    """Returns the iterations' times in seconds by the job's own clock, of the slowest rank; empty if unknown."""
    if run.job.own == "times":
        paths = sorted((out / "own").glob(f"{run.job.name}-{run.network}-[0-9]*"))
        by_rank = [[float(line) for line in path.read_text().split("\n")[:-1] if line] for path in paths]
        return [max(times) for times in zip(*by_rank, strict=False)]
    for path in sorted((result.directory / "logs").glob("rank-*.log")):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(errors="replace"))
        values = [float(text.replace(",", "")) for text in re.findall(run.job.own, plain)]
        if values:
            per_s = TORCHTITAN_TOKENS if run.job.own == LINE_TPS else None
            return [per_s / v if per_s else v * 1e-3 for v in values]
    return []


def row_of(out: Path, run: Run, card: str) -> Row:
    """Returns the line of a run, from its stored result."""
    result = result_of(out, run)
    head = (time.strftime("%Y-%m-%d", time.gmtime()), card, run.job.name, run.job.kind, run.network)
    if result is None:
        return Row(*head, "failed", reason=f"no result; see {last_line(log_of(out, run))}")
    if result.breakdown is None:
        return Row(*head, str(result.outcome.status), reason=" ".join((result.outcome.reason or "").split())[:300])
    (job_row,) = job_rows([result])
    measured = job_row.iteration_ns
    experiment = result.experiment
    assert isinstance(experiment, JobExperiment)
    if measured is None:
        return Row(*head, "failed", reason="no iteration was measured")
    own = own_times_s(out, run, result)
    # The hook's first iteration has no known start, as in `wirecost.jobs.steps`.
    first = max(experiment.warmup, 1)
    # By the job's clock, the last iteration before a profiled window holds the start of the profiler.
    count = max(experiment.iterations - bool(experiment.profile_iterations), 1)
    own, same = own[first : first + count], job_row.times_ns[:count]
    exposed: Share | None = job_row.exposed
    return Row(
        *head,
        str(result.outcome.status),
        str(measured.n),
        f"{statistics.median(own) * 1e3:.3f}" if own else "",
        f"{statistics.median(same) * 1e-6:.3f}",
        f"{measured.median * 1e-6:.3f}",
        f"{measured.q1 * 1e-6:.3f}",
        f"{measured.q3 * 1e-6:.3f}",
        "" if exposed is None else f"{exposed.low:.4f}",
        "" if exposed is None else f"{exposed.high:.4f}",
        job_row.transport or "",
    )


def log_of(out: Path, run: Run) -> Path:
    return out / "logs" / f"{run.job.name}-{run.network}.log"


def last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return f"{path.name}: {lines[-1][:200]}" if lines else f"{path.name}: empty"


def start(out: Path, run: Run, *, device: str, left_s: float) -> None:
    """Runs a job over a network with `wirecost run`, at most for the seconds that are left."""
    store = out / "runs" / run.job.name / run.network
    limit_s = min(2 * run.seconds + 30, left_s)
    again = ["--out", str(store), "--resume"]
    if run.job.engine is None:
        command = [
            *WIRECOST, "run", "--name", run.job.name, "--networks", run.network, "--steps", str(run.steps),
            "--warmup", str(run.warmup), "--profile", str(run.profiled), "--timeout", f"{limit_s:.0f} s", *again,
            "--retry-failed", "--", *run.job.command(device=device, tiny=run.tiny),
        ]  # fmt: skip
    else:
        study = out / "studies" / f"{run.job.name}-{run.network}.yaml"
        study.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "name": run.job.name, "device": "cuda", "workloads": [run.job.engine], "networks": [run.network],
            "hosts": [2], "iterations": run.steps, "warmup": run.warmup, "profile_iterations": run.profiled,
            "benchmark": False, "timeout": f"{limit_s:.0f} s",
        }  # fmt: skip
        study.write_text(json.dumps(data))  # which is YAML too
        command = [*WIRECOST, "study", "run", str(study), *again, "--retry-failed"]
    environment = {
        **os.environ,
        "OWN_TIMES": str((out / "own" / f"{run.job.name}-{run.network}").absolute()),
        # A job that is compiled once starts faster over the next network.
        "TORCHINDUCTOR_CACHE_DIR": str((out / "inductor").absolute()),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if device == "cpu":
        environment["OMP_NUM_THREADS"] = "1"
    for folder in ("own", "logs", "runs"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for path in (out / "own").glob(f"{run.job.name}-{run.network}-[0-9]*"):
        path.unlink()
    with log_of(out, run).open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(limit_s + GRACE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            stop(process)
            if isinstance(error, KeyboardInterrupt):
                raise


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
