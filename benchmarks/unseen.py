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

from wirecost.breakdown import Breakdown
from wirecost.calibration.calibrate import calibrate as fit
from wirecost.calibration.host import with_measured_host
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.saved import read, write
from wirecost.cli._host_times import print_host
from wirecost.prediction.study import predict_study
from wirecost.spec import Device, Experiment, Precision, Study, to_yaml, validate
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
        name: {cell.experiment.slug: cell for cell in predict_study(study, read(options.out / name))}
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


def numbers(breakdown: Breakdown) -> tuple[str, str]:
    """Returns an iteration in seconds and the communication fraction as text; empty where they are unknown."""
    time_ns, fraction = breakdown.iteration_ns(), breakdown.comm_fraction()
    seconds = "" if time_ns is None else f"{time_ns.median * 1e-9:.5f}"
    return seconds, "" if fraction is None else f"{fraction.median:.4f}"


def report(options: argparse.Namespace) -> None:
    """Prints every cell that was measured beside its prediction, the mean errors, and the cells that failed."""
    with (options.out / "predictions.csv").open(newline="", encoding="utf-8") as file:
        predicted = {line["cell"]: Row(**line) for line in csv.DictReader(file)}
    experiments = options.out / study_of(options).name / "experiments"
    compared: list[tuple[Row, float, float | None, float | None]] = []
    print(f"{'plan':<12} {'network':<14} {'predicted':>11} {'measured':>11} {'error':>7}  without host  fraction")
    for slug, row in predicted.items():
        if not (experiments / slug / "status.json").is_file():
            print(f"{row.plan:<12} {row.network:<14} not measured")
            continue
        result = read_result(experiments / slug, slug)
        if result.outcome.status is not Status.DONE or result.breakdown is None:
            print(f"{row.plan:<12} {row.network:<14} {result.outcome.status}: {result.outcome.reason}")
            continue
        assert isinstance(result.experiment, Experiment)
        seconds, fraction = numbers(result.breakdown)
        if not seconds or not row.iteration_s:
            print(
                f"{row.plan:<12} {row.network:<14} measured {seconds or 'unknown'} s, not predicted: {row.refused}"
            )
            continue
        error = float(row.iteration_s) / float(seconds) - 1
        without = float(row.without_host_s) / float(seconds) - 1 if row.without_host_s else None
        off = float(row.comm_fraction) - float(fraction) if row.comm_fraction and fraction else None
        compared.append((row, error, without, off))
        inside = row.interval_low_s and float(row.interval_low_s) <= float(seconds) <= float(row.interval_high_s)
        times = f"{float(row.iteration_s) * 1e3:8.1f} ms {float(seconds) * 1e3:8.1f} ms"
        print(
            f"{row.plan:<12} {row.network:<14} {times} {error:+7.1%}  "
            f"{'unknown' if without is None else f'{without:+.1%}':>12}  "
            f"{row.comm_fraction or 'unknown'} and {fraction or 'unknown'}"
            f"{'' if inside else ', outside its interval'}"
        )
    summarise(compared)


def summarise(compared: list[tuple[Row, float, float | None, float | None]]) -> None:
    def mean(values: list[float]) -> float | None:
        return sum(map(abs, values)) / len(values) if values else None

    def line(label: str, chosen: list[tuple[Row, float, float | None, float | None]]) -> str:
        time_error = mean([error for _, error, _, _ in chosen])
        without = mean([w for _, _, w, _ in chosen if w is not None])
        off = mean([f for _, _, _, f in chosen if f is not None])
        shown = [f"{v:.1%}" if v is not None else "unknown" for v in (time_error, without)]
        return (
            f"{label:<24} {len(chosen):2} cells: iteration {shown[0]} (without host times {shown[1]}), "
            f"fraction {'unknown' if off is None else f'{off:.3f}'}"
        )

    if not compared:
        print("nothing was measured yet")
        return
    print(f"\nmean |error|; wanted: {AIM:.0%} and {FRACTION_AIM}. {BEFORE}")
    print(line("all", compared))
    print(line("without tensor parallelism", [c for c in compared if "tp2" not in c[0].plan]))
    for key in ("plan", "network"):
        for value in dict.fromkeys(getattr(row, key) for row, _, _, _ in compared):
            print(line(f"{key} {value}", [c for c in compared if getattr(c[0], key) == value]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("calibrate", "predict", "measure", "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300, help="for this call")
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
