"""What communication costs the host, and how well that predicts a model that was not measured.

    PYTHONPATH=src python benchmarks/host_costs.py                            # the table, on one GPU
    PYTHONPATH=src python benchmarks/host_costs.py --validate --out DIR       # and the check, on two GPUs
    PYTHONPATH=src python benchmarks/host_costs.py --validate --device cpu --tiny    # does it run?

The table is that of `wirecost calibrate --measure-host` for GPT-350M. `--validate` calibrates on one-rank runs of
GPT-350M, on a benchmark of the network and on the table. It then predicts a model like Llama 1B with tensor
parallelism of two, with sequence parallelism and with ZeRO-3, and trains each for a few seconds. Each row is
printed as soon as it is measured: predicted without the table, predicted with it, measured. By default the engine
replays CUDA graphs where the host would hold up the device. Without graphs the host matters. `--seconds` limits
everything; what doesn't fit isn't measured. On processors the host's times are not used, because they are those of
the computation as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wirecost.breakdown import Breakdown
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.host import with_measured_host
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.result import Calibration
from wirecost.cli._host_times import print_host
from wirecost.prediction.study import predict_study
from wirecost.spec import (
    AnyExperiment,
    Device,
    Experiment,
    Precision,
    Study,
    Workload,
    load_spec,
    stack_named,
    validate,
)
from wirecost.study import Status, run_study
from wirecost.study.progress import Silent
from wirecost.study.store import Outcome
from wirecost.train.hosttimes import HostRequest, MeasuredHost, measure_host

KNOWN, PRECISION = "gpt-350m", Precision.BF16
# The dimensions of TinyLlama 1.1B (its config.json).
UNSEEN = {
    "name": "llama-1b", "family": "llama", "layers": 22, "hidden": 2048, "heads": 32, "kv_heads": 4,
    "ffn_hidden": 5632, "vocab_size": 32000, "sequence_length": 2048,
}  # fmt: skip
TINY = {
    "layers": 2, "hidden": 64, "heads": 4, "ffn_hidden": 128, "vocab_size": 512, "sequence_length": 32,
}  # fmt: skip
PLANS: dict[str, dict[str, object]] = {
    "TP 2, sequence parallel": {"data_parallel": "all_reduce", "tensor_parallel": 2, "sequence_parallel": True},
    "ZeRO-3": {"data_parallel": "zero3"},
    "TP 2": {"data_parallel": "all_reduce", "tensor_parallel": 2},
}
WITHOUT = ", without graphs"
PLANS |= {name + WITHOUT: {**plan, "graphs": False} for name, plan in PLANS.items()}
AIM = 0.10
"""Largest error of a prediction that is aimed for."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What runs, and where."""

    device: Device
    tiny: bool
    unseen: str | None
    out: Path
    end_s: float  # on the monotonic clock

    @property
    def left_s(self) -> float:
        return self.end_s - time.monotonic()

    def workload(self, *, seen: bool) -> Workload:
        name = KNOWN if seen else self.unseen
        workload = validate(Workload, UNSEEN, "workload") if name is None else load_spec("workload", name)
        changes = TINY | ({} if workload.kv_heads is None else {"kv_heads": 2}) if self.tiny else {}
        return workload.model_copy(update=changes)

    def study(
        self,
        name: str,
        workload: Workload,
        plans: dict[str, dict[str, object]],
        micro_batches: list[int],
        ranks: int,
    ) -> Study:
        """Returns a study of plans and micro-batches, with four micro-batches on all ranks together."""
        cuda = self.device is Device.CUDA
        common: dict[str, object] = {"precision": str(PRECISION)}
        if not cuda:
            plans = {name: plan for name, plan in plans.items() if "graphs" not in plan} or {"alone": {}}
        data = {
            "name": name,
            "device": str(self.device),
            "workloads": [workload.model_dump(mode="json", exclude_none=True)],
            "networks": ["nvlink" if cuda else "loopback"],
            "plans": [{"name": plan_name(plan), **common, **keys} for plan, keys in plans.items()],
            "hosts": [ranks if cuda else 1],
            "ranks_per_host": 1 if cuda else ranks,
            "scaling": [
                {"kind": "strong", "global_batch": 4 * micro_batch, "micro_batch": micro_batch}
                for micro_batch in micro_batches
            ],
            "benchmark": False,
            "iterations": 2 if self.tiny else 8,
            "min_time": "0 s" if self.tiny else "2 s",
            "warmup": 1 if self.tiny else 3,
        }
        return validate(Study, data, name)


def plan_name(plan: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in plan.lower())


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
    """Returns the calibration on one-rank runs and on a benchmark. Without graphs, the small run waits for its
    host. With graphs, it shows the kernels of a small micro-batch."""
    alone = setting.out / "alone"
    plans: dict[str, dict[str, object]] = {"alone": {"graphs": False}, "replayed": {"graphs": True}}
    run_study(setting.study("alone", setting.workload(seen=True), plans, [1, 8], ranks=1), alone)
    print("  one-rank runs: done", file=sys.stderr, flush=True)
    cuda = setting.device is Device.CUDA
    where = ["nvlink" if cuda else "loopback", "--hosts", "1", "--ranks-per-host", "2"]
    sizes = ["-b", "1K", "-e", "1M", "-f", "16"] if setting.tiny else ["-b", "1K", "-e", "256M", "-f", "4"]
    command = [
        sys.executable, "-m", "wirecost", "bench", "all_reduce", "all_gather", "reduce_scatter",
        "--network", *where, "--backend", "nccl" if cuda else "gloo", "--place", "in", *sizes, "--format", "json",
    ]  # fmt: skip
    bench = setting.out / "bench.json"
    with bench.open("wb") as output:
        subprocess.run(command, stdout=output, check=True, timeout=max(setting.left_s, 1.0))
    print("  benchmark: done", file=sys.stderr, flush=True)
    return calibrate(gather([alone, bench], TraceOptions()))


def predicted_s(study: Study, calibration: Calibration) -> dict[str, float]:
    """Returns the predicted seconds of each experiment that can be predicted, by its name."""
    seconds = {}
    for cell in predict_study(study, calibration):
        time_ns = cell.prediction.breakdown.iteration_ns() if cell.prediction else None
        if time_ns is None:
            print(f"  {cell.experiment.slug}: not predicted: {cell.refused}", flush=True)
        else:
            seconds[cell.experiment.slug] = time_ns.median * 1e-9
    return seconds


class Rows(Silent):
    """Prints a row when an experiment has finished."""

    def __init__(self, store: Path, without: dict[str, float], with_host: dict[str, float]) -> None:
        self.store, self.without, self.with_host = store, without, with_host

    def experiment_finished(self, experiment: AnyExperiment, outcome: Outcome) -> None:
        assert isinstance(experiment, Experiment)
        slug, measured = experiment.slug, None
        path = self.store / "experiments" / slug / "breakdown.json"
        if outcome.status is Status.DONE and path.exists():
            time_ns = Breakdown.model_validate_json(path.read_bytes()).iteration_ns()
            measured = None if time_ns is None else time_ns.median * 1e-9
        elif outcome.status is not Status.DONE:
            print(f"  {slug}: {outcome.status}: {outcome.reason}", flush=True)
        plan = next(plan for plan in PLANS if plan_name(plan) == experiment.plan.name)
        times = (self.without.get(slug), self.with_host.get(slug), measured)
        print(row(plan, experiment.micro_batch, *times), flush=True)


def validate_unseen(setting: Setting, host: MeasuredHost, micro_batches: list[int], plans: list[str]) -> None:
    presets = calibrated(setting)
    mine = with_measured_host(presets, host)
    workload = setting.workload(seen=False)
    study = setting.study("unseen", workload, {name: PLANS[name] for name in plans}, micro_batches, ranks=2)
    store = setting.out / "unseen"
    rows = Rows(store, predicted_s(study, presets), predicted_s(study, mine))
    print(f"{workload.name}, not measured before, in {PRECISION} on two ranks:")
    print(f"{'plan':<39} {'micro-batch':>11} {'without':>10} {'with':>10} {'measured':>10}   errors")
    run_study(study, store, progress=rows, budget_s=max(setting.left_s, 1.0))
    left = len(study.model_experiments()) - len(list(store.glob("experiments/*/status.json")))
    if left:
        print(f"{left} not measured: no time left", flush=True)


def row(plan: str, micro_batch: int, before: float | None, after: float | None, measured: float | None) -> str:
    shown = [f"{'unknown' if s is None else f'{s * 1e3:.1f} ms':>10}" for s in (before, after, measured)]
    errors = "unknown"
    if before is not None and after is not None and measured is not None:
        verdict = "within" if abs(after / measured - 1) <= AIM else "beyond"
        errors = f"{before / measured - 1:+.1%}, {after / measured - 1:+.1%}: {verdict} {AIM:.0%}"
    return f"{plan:<39} {micro_batch:>11} {' '.join(shown)}   {errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--validate", action="store_true", help="predict and measure another model on two ranks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models for checking that everything runs")
    parser.add_argument(
        "--micro-batches", type=lambda text: [int(part) for part in text.split(",")], default=[1, 4]
    )
    parser.add_argument("--plans", nargs="*", choices=list(PLANS), metavar="PLAN", help="; ".join(PLANS))
    parser.add_argument("--unseen", metavar="WORKLOAD", help="another model to predict: a preset or a file")
    parser.add_argument("--seconds", type=float, default=300, help="for everything; nothing begins later")
    parser.add_argument(
        "--out", type=Path, help="a new directory for runs and predictions; a temporary one if absent"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        end_s = time.monotonic() + arguments.seconds
        setting = Setting(Device(arguments.device), arguments.tiny, arguments.unseen, out, end_s)
        host = measured_host(setting)
        print_host(host, stack_named("engine-cuda"), "text")
        sys.stdout.flush()
        if arguments.validate:
            validate_unseen(setting, host, arguments.micro_batches, arguments.plans or list(PLANS))


if __name__ == "__main__":
    main()
