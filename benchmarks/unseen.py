"""A model that no study has trained: calibrated on one GPU, predicted, then measured on two.

    PYTHONPATH=src python benchmarks/unseen.py calibrate --out DIR --seconds 150
    PYTHONPATH=src python benchmarks/unseen.py predict   --out DIR       # needs no GPU: commit DIR/predictions.csv
    PYTHONPATH=src python benchmarks/unseen.py measure   --out DIR --seconds 300
    PYTHONPATH=src python benchmarks/unseen.py report    --out DIR
    PYTHONPATH=src python benchmarks/unseen.py calibrate --out DIR --device cpu --tiny    # does it run?

The study is `benchmarks/data/llama-1b.yaml`: a Llama of TinyLlama 1.1B's dimensions, from a config.json, under
DDP, ZeRO-1, ZeRO-3, tensor parallelism with sequence parallelism, and a pipeline, over NVLink, shared memory and
25 Gb/s. `calibrate` trains it alone on one GPU, benchmarks the networks (both with `reproduce.py`), and measures
what communication costs the host (`--measure-host`) for at most --host-seconds. `predict` predicts every cell with
these host times and without them. `measure` runs the cells that have no result, and `report` prints the errors: of
iterations 5 % are wanted, of the communication fraction 0.03. On processors no host times are measured.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import subprocess
import sys
import time
from pathlib import Path

from lanes import card

from wirecost.breakdown import Breakdown
from wirecost.calibration.calibrate import calibrate as fit
from wirecost.calibration.host import with_measured_host
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.result import Calibration
from wirecost.calibration.saved import read, write
from wirecost.cli._host_times import print_host
from wirecost.prediction.study import predict_study
from wirecost.spec import Device, Precision, Study, to_yaml, validate
from wirecost.study import Status
from wirecost.study.loading import load_study
from wirecost.study.result import read_result
from wirecost.train.hosttimes import HostRequest, measure_host

HERE = Path(__file__).resolve().parent
STUDY = HERE / "data" / "llama-1b.yaml"
TINY = {
    "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn_hidden": 128, "vocab_size": 512,
    "sequence_length": 32,
}  # fmt: skip
AIM, FRACTION_AIM = 0.05, 0.03
BEFORE = "2026-11-29: 10.2 % and 0.034; 4.0 % without tensor parallelism; ZeRO-3 crashed"
AFTER_HOST_S = 20.0
"""Time that fitting and writing take, and starting the variants whose host times are measured."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of predictions.csv; an empty text is unknown."""

    cell: str
    plan: str
    network: str
    iteration_s: str = ""
    interval_low_s: str = ""
    interval_high_s: str = ""
    comm_fraction: str = ""
    without_host_s: str = ""
    without_host_fraction: str = ""
    refused: str = ""


def study_of(options: argparse.Namespace) -> Study:
    study = load_study(str(STUDY))
    if not options.tiny:
        return study
    (workload,) = study.models
    data = {
        "name": study.name, "device": "cpu", "networks": ["loopback", "emulated-1g", "emulated-300m"],
        "workloads": [{**workload.model_dump(mode="json", exclude_none=True), **TINY}],
        "plans": ["ddp", "zero1", "zero3", "tp2-sp", "pp2-1f1b"], "hosts": [2],
        "scaling": [{"kind": "strong", "global_batch": 8, "micro_batch": 2}],
        "benchmark": False, "iterations": 4, "min_time": "0 s", "warmup": 1,
    }  # fmt: skip
    return validate(Study, data, "tiny")


def reproduce(stage: str, options: argparse.Namespace, seconds: float) -> int:
    """Runs a stage of `reproduce.py` and returns its exit code."""
    path = options.out / "study.yaml"
    path.write_text(to_yaml(study_of(options)))
    command = [
        sys.executable, str(HERE / "reproduce.py"), stage, "--study", str(path), "--out", str(options.out),
        "--seconds", f"{seconds:.0f}",
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode


def calibrate(options: argparse.Namespace, deadline: float) -> int:
    """Measures what predictions need, and writes the calibrations OUT/mine and OUT/mine-host."""
    study = study_of(options)
    host_s = options.host_seconds if study.device is Device.CUDA else 0.0
    code = reproduce("calibrate", options, deadline - time.monotonic() - host_s - (AFTER_HOST_S if host_s else 0))
    sources = [*sorted(options.out.glob("alone-*")), *sorted((options.out / "bench").glob("*.json"))]
    if not sources:
        print("nothing was measured to calibrate on", file=sys.stderr)
        return code or 1
    calibration = fit(gather(sources, TraceOptions()))
    write(calibration, options.out / "mine")
    print(f"calibrated on {', '.join(path.name for path in sources)}", flush=True)
    left_s = min(host_s, deadline - time.monotonic())
    if left_s > 0:
        (precision,) = {Precision(e.plan.precision) for e in study.model_experiments()}
        (workload,) = study.models
        host = measure_host(HostRequest(workload, precision, study.device, limit_s=left_s))
        calibration = with_measured_host(calibration, host)
        print_host(host, calibration.stacks.get(precision), "text")
    write(calibration, options.out / "mine-host")
    return code


def predict(options: argparse.Namespace) -> int:
    """Predicts every cell with the host's times and without them, and writes OUT/predictions.csv."""
    study = study_of(options)
    cells = {
        name: {cell.experiment.slug: cell for cell in predict_study(study, calibration_of(options, name))}
        for name in ("mine", "mine-host")
    }
    rows = []
    for slug, cell in cells["mine-host"].items():
        head = (slug, cell.experiment.plan.name, cell.experiment.network.name)
        if cell.prediction is None:
            rows.append(Row(*head, refused=cell.refused or ""))
            print(f"{slug}: not predicted: {cell.refused}")
            continue
        plain = cells["mine"][slug].prediction
        with_host = cell.prediction.breakdown
        interval = with_host.interval
        ends = (
            ("", "") if interval is None else (f"{interval.low_ns * 1e-9:.5f}", f"{interval.high_ns * 1e-9:.5f}")
        )
        without = ("", "") if plain is None else numbers(plain.breakdown)
        row = Row(*head, numbers(with_host)[0], *ends, numbers(with_host)[1], *without)
        rows.append(row)
        between = f"{float(ends[0]) * 1e3:.1f} to {float(ends[1]) * 1e3:.1f}" if ends[0] else "no interval"
        print(
            f"{row.plan:<12} {row.network:<14} {float(row.iteration_s) * 1e3:8.1f} ms ({between}), "
            f"fraction {row.comm_fraction}, without host times {float(row.without_host_s or 'nan') * 1e3:.1f} ms"
        )
    with (options.out / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Row))
        writer.writerows(dataclasses.astuple(row) for row in rows)
    return 0


def calibration_of(options: argparse.Namespace, name: str) -> Calibration:
    """Returns a calibration, with the networks of --networks that were not benchmarked for it."""
    mine = read(options.out / name)
    if options.networks is None:
        return mine
    gpu = next(iter(mine.clusters.values())).gpu
    others = {n: c.model_copy(update={"gpu": gpu}) for n, c in read(options.networks).clusters.items()}
    return dataclasses.replace(mine, clusters=others | mine.clusters)


def numbers(breakdown: Breakdown) -> tuple[str, str]:
    """Returns an iteration in seconds and the communication fraction as text; empty where they are unknown."""
    time_ns, fraction = breakdown.iteration_ns(), breakdown.comm_fraction()
    seconds = "" if time_ns is None else f"{time_ns.median * 1e-9:.5f}"
    return seconds, "" if fraction is None else f"{fraction.median:.4f}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """A line of measured.csv: a cell beside its prediction; an empty text is unknown."""

    date: str
    card: str
    cell: str
    plan: str
    network: str
    status: str
    measured_s: str = ""
    measured_fraction: str = ""
    predicted_s: str = ""
    predicted_fraction: str = ""
    without_host_s: str = ""
    inside_interval: str = ""
    reason: str = ""

    def error(self, predicted_s: str) -> float | None:
        """Returns predicted / measured - 1; None if one is unknown."""
        return float(predicted_s) / float(self.measured_s) - 1 if predicted_s and self.measured_s else None

    @property
    def fraction_off(self) -> float | None:
        if not (self.predicted_fraction and self.measured_fraction):
            return None
        return float(self.predicted_fraction) - float(self.measured_fraction)

    @property
    def text(self) -> str:
        head = f"{self.plan:<12} {self.network:<14}"
        if self.status != Status.DONE:
            return f"{head} {self.status}: {self.reason}"
        times = [
            f"{float(s) * 1e3:8.1f} ms" if s else f"{'unknown':>11}" for s in (self.predicted_s, self.measured_s)
        ]
        errors = [self.error(predicted) for predicted in (self.predicted_s, self.without_host_s)]
        shown = ["unknown" if error is None else f"{error:+.1%}" for error in errors]
        fractions = f"{self.predicted_fraction or 'unknown'} and {self.measured_fraction or 'unknown'}"
        outside = ", outside its interval" if self.inside_interval == "no" else ""
        return f"{head} {' '.join(times)} {shown[0]:>7}  {shown[1]:>12}  {fractions}{outside}"


def measured_of(row: Row, directory: Path, name: str) -> Measured:
    """Returns a cell of the study beside its prediction."""
    head = (time.strftime("%Y-%m-%d", time.gmtime()), name, row.cell, row.plan, row.network)
    if not (directory / "status.json").is_file():
        return Measured(*head, "not measured")
    result = read_result(directory, directory.name)
    if result.breakdown is None:
        return Measured(*head, str(result.outcome.status), reason=" ".join((result.outcome.reason or "").split()))
    seconds, fraction = numbers(result.breakdown)
    inside = ""
    if row.interval_low_s and seconds:
        inside = "yes" if float(row.interval_low_s) <= float(seconds) <= float(row.interval_high_s) else "no"
    return Measured(
        *head, str(result.outcome.status), seconds, fraction, row.iteration_s, row.comm_fraction,
        row.without_host_s, inside, row.refused,
    )  # fmt: skip


def report(options: argparse.Namespace) -> None:
    """Prints every cell beside its prediction, and the mean errors, and writes OUT/measured.csv."""
    with (options.out / "predictions.csv").open(newline="", encoding="utf-8") as file:
        predicted = [Row(**line) for line in csv.DictReader(file)]
    experiments, name = options.out / study_of(options).name / "experiments", card(options.device)
    cells = [measured_of(row, experiments / row.cell, name) for row in predicted]
    print(f"{'plan':<12} {'network':<14} {'predicted':>11} {'measured':>11} {'error':>7}  without host  fraction")
    for cell in cells:
        print(cell.text)
    with (options.out / "measured.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in dataclasses.fields(Measured))
        writer.writerows(dataclasses.astuple(cell) for cell in cells)
    compared = [cell for cell in cells if cell.error(cell.predicted_s) is not None]
    if not compared:
        print("nothing was measured yet")
        return
    print(f"\nmean |error|; wanted: {AIM:.0%} and {FRACTION_AIM}. {BEFORE}")
    print(mean_errors("all", compared))
    print(mean_errors("without tensor parallelism", [c for c in compared if "tp2" not in c.plan]))
    for key in ("plan", "network"):
        for value in dict.fromkeys(getattr(cell, key) for cell in compared):
            print(mean_errors(f"{key} {value}", [c for c in compared if getattr(c, key) == value]))


def mean_errors(label: str, cells: list[Measured]) -> str:
    def mean(values: list[float | None], form: str) -> str:
        known = [abs(value) for value in values if value is not None]
        return format(sum(known) / len(known), form) if known else "unknown"

    times = mean([cell.error(cell.predicted_s) for cell in cells], ".1%")
    without = mean([cell.error(cell.without_host_s) for cell in cells], ".1%")
    off = mean([cell.fraction_off for cell in cells], ".3f")
    return f"{label:<26} {len(cells):2} cells: iteration {times} (without host times {without}), fraction {off}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("calibrate", "predict", "measure", "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300, help="for this call")
    parser.add_argument(
        "--networks", type=Path, help="a calibration of the networks, where one GPU can't measure them"
    )
    parser.add_argument("--host-seconds", type=float, default=50, help="for the host's times")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model, for checking that everything runs")
    options = parser.parse_args()
    if options.tiny != (options.device == "cpu"):
        parser.error("--tiny and --device cpu go together")
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage == "calibrate":
        return calibrate(options, deadline)
    if options.stage == "predict":
        return predict(options)
    code = reproduce("measure", options, options.seconds) if options.stage == "measure" else 0
    if (options.out / "predictions.csv").is_file():
        report(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
