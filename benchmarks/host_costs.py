"""What communication costs the host, and how well that predicts a model that was not measured.

    PYTHONPATH=src python benchmarks/host_costs.py                            # the table, on one GPU
    PYTHONPATH=src python benchmarks/host_costs.py --validate --out DIR       # and the check, on two GPUs
    PYTHONPATH=src python benchmarks/host_costs.py --validate --device cpu --tiny    # does it run?

The table is that of `wirecost calibrate --measure-host` for GPT-350M. `--validate` calibrates on one-rank runs of
GPT-350M, on a benchmark of the network and on the table. It then predicts a model like Llama 1B with tensor
parallelism of two, with sequence parallelism and with ZeRO-3, and trains each for a few seconds. Each row is
printed as soon as it is measured: predicted without the table, predicted with it, measured. No graphs are used, so
that the host matters. `--seconds` limits everything; what doesn't fit isn't measured. On processors the host's
times are not used, because they are those of the computation as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.host import with_measured_host
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.result import Calibration
from wirecost.cli._host_times import print_host
from wirecost.prediction.study import predict_study
from wirecost.spec import Device, Precision, Study, Workload, load_spec, stack_named, validate
from wirecost.study import run_study
from wirecost.train.hosttimes import HostRequest, MeasuredHost, measure_host

KNOWN, PRECISION = "gpt-350m", Precision.BF16
# The dimensions of Llama 3.2 1B (its config.json).
UNSEEN = {
    "name": "llama-1b", "family": "llama", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8,
    "ffn_hidden": 8192, "vocab_size": 128256, "sequence_length": 2048, "tied_embeddings": True,
}  # fmt: skip
TINY = {
    "layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128, "vocab_size": 512, "sequence_length": 32,
}  # fmt: skip
PLANS = {
    "TP 2": {"data_parallel": "all_reduce", "tensor_parallel": 2},
    "TP 2, sequence parallel": {"data_parallel": "all_reduce", "tensor_parallel": 2, "sequence_parallel": True},
    "ZeRO-3": {"data_parallel": "zero3"},
}
AIM = 0.10
"""Largest error of a prediction that is aimed for."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What runs, and where."""

    device: Device
    tiny: bool
    out: Path
    end_s: float  # on the monotonic clock

    @property
    def left_s(self) -> float:
        return self.end_s - time.monotonic()

    def workload(self, *, seen: bool) -> Workload:
        workload = load_spec("workload", KNOWN) if seen else validate(Workload, UNSEEN, "workload")
        changes = TINY | ({} if seen else {"kv_heads": 2}) if self.tiny else {}
        return workload.model_copy(update=changes)

    def study(self, name: str, workload: Workload, plan: dict[str, object], micro_batch: int, ranks: int) -> Study:
        """Returns a study of one experiment, with four micro-batches on both ranks together."""
        cuda = self.device is Device.CUDA
        data = {
            "name": name,
            "device": str(self.device),
            "workloads": [workload.model_dump(mode="json", exclude_none=True)],
            "networks": ["nvlink" if cuda else "loopback"],
            "plans": [{"name": name, "precision": str(PRECISION), "graphs": False, **plan}],
            "hosts": [ranks if cuda else 1],
            "ranks_per_host": 1 if cuda else ranks,
            "scaling": [{"kind": "strong", "global_batch": 4 * micro_batch, "micro_batch": micro_batch}],
            "benchmark": False,
            "iterations": 2 if self.tiny else 8,
            "min_time": "0 s" if self.tiny else "2 s",
            "warmup": 1 if self.tiny else 3,
        }
        if not cuda:
            data["plans"][0].pop("graphs")
        return validate(Study, data, name)


def told(done: int, total: int, what: str) -> None:
    if not done or done == total:
        print(f"  {what}", file=sys.stderr, flush=True)


def measured_host(setting: Setting) -> MeasuredHost:
    request = HostRequest(setting.workload(seen=True), PRECISION, setting.device)
    if setting.tiny:
        request = dataclasses.replace(request, rounds=3, iterations=1, warmup=1)
    limit_s = max(min(request.limit_s, setting.left_s), 1.0)
    return measure_host(dataclasses.replace(request, limit_s=limit_s), told)


def calibrated(setting: Setting) -> Calibration:
    """Returns the calibration on one-rank runs, of which the small one waits for its host, and on a benchmark."""
    sources = []
    for micro_batch in (1, 8):
        name = f"alone-{micro_batch}"
        study = setting.study(name, setting.workload(seen=True), {}, micro_batch, ranks=1)
        run_study(study, setting.out / name)
        sources.append(setting.out / name)
        print(f"  {name}: done", file=sys.stderr, flush=True)
    cuda = setting.device is Device.CUDA
    where = ["nvlink", "--hosts", "2"] if cuda else ["loopback", "--hosts", "1", "--ranks-per-host", "2"]
    sizes = ["-b", "1K", "-e", "1M", "-f", "16"] if setting.tiny else ["-b", "1K", "-e", "256M", "-f", "4"]
    command = [
        sys.executable, "-m", "wirecost", "bench", "all_reduce", "all_gather", "reduce_scatter",
        "--network", *where, "--backend", "nccl" if cuda else "gloo", "--place", "in", *sizes, "--format", "json",
    ]  # fmt: skip
    bench = setting.out / "bench.json"
    with bench.open("wb") as output:
        subprocess.run(command, stdout=output, check=True, timeout=max(setting.left_s, 1.0))
    sources.append(bench)
    return calibrate(gather(sources, TraceOptions()))


def predicted_s(study: Study, calibration: Calibration) -> float | None:
    (cell,) = predict_study(study, calibration)
    time_ns = cell.prediction.breakdown.iteration_ns() if cell.prediction else None
    if time_ns is None:
        print(f"  {study.name}: not predicted: {cell.refused}", flush=True)
        return None
    return time_ns.median * 1e-9


def measured_s(study: Study, out: Path) -> float | None:
    for result in run_study(study, out):
        time_ns = result.breakdown.iteration_ns() if result.breakdown else None
        if time_ns is not None:
            return time_ns.median * 1e-9
        print(f"  {study.name}: {result.outcome.status}: {result.outcome.reason}", flush=True)
    return None


def validate_unseen(setting: Setting, host: MeasuredHost, micro_batches: list[int]) -> None:
    presets = calibrated(setting)
    mine = with_measured_host(presets, host)
    workload = setting.workload(seen=False)
    print(f"{workload.name}, not measured before, in {PRECISION} on two ranks:")
    print(f"{'plan':<24} {'micro-batch':>11} {'without':>10} {'with':>10} {'measured':>10}   errors")
    for micro_batch in micro_batches:
        for plan, keys in PLANS.items():
            if setting.left_s < 0:
                print(f"{plan:<24} {micro_batch:>11} no time left", flush=True)
                continue
            name = "".join(c if c.isalnum() else "-" for c in f"{plan}-{micro_batch}".lower())
            study = setting.study(name, workload, keys, micro_batch, ranks=2)
            before, after = (predicted_s(study, calibration) for calibration in (presets, mine))
            print(row(plan, micro_batch, before, after, measured_s(study, setting.out / name)), flush=True)


def row(plan: str, micro_batch: int, before: float | None, after: float | None, measured: float | None) -> str:
    shown = [f"{'unknown' if s is None else f'{s * 1e3:.1f} ms':>10}" for s in (before, after, measured)]
    errors = "unknown"
    if before is not None and after is not None and measured is not None:
        verdict = "within" if abs(after / measured - 1) <= AIM else "beyond"
        errors = f"{before / measured - 1:+.1%}, {after / measured - 1:+.1%}: {verdict} {AIM:.0%}"
    return f"{plan:<24} {micro_batch:>11} {' '.join(shown)}   {errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--validate", action="store_true", help="predict and measure another model on two ranks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models for checking that everything runs")
    parser.add_argument(
        "--micro-batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4]
    )
    parser.add_argument("--seconds", type=float, default=300, help="for everything; nothing begins later")
    parser.add_argument(
        "--out", type=Path, help="a new directory for runs and predictions; a temporary one if absent"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        end_s = time.monotonic() + arguments.seconds
        setting = Setting(Device(arguments.device), arguments.tiny, out, end_s)
        host = measured_host(setting)
        print_host(host, stack_named("engine-cuda"), "text")
        sys.stdout.flush()
        if arguments.validate:
            validate_unseen(setting, host, arguments.micro_batches)


if __name__ == "__main__":
    main()
