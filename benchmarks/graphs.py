"""Times iterations that are replayed from CUDA graphs beside iterations that the host launches, on local GPUs.

    PYTHONPATH=src python benchmarks/graphs.py                                # on two GPUs
    PYTHONPATH=src python benchmarks/graphs.py --device cpu --tiny --eager    # does it run?

Each row is a model with a plan: the median iteration with and without graphs, the time that the host takes to
issue it, the largest relative difference of a loss between the two, the peak memory, and what the events that
measure cost a replayed iteration. The aims are a
tensor-parallel iteration within 1.15 times that of DDP, and ZeRO-3 within 1.3 times. Tokens are random. `--peers`
also times Megatron-Core, DTensor and FSDP2 (`graphs_peers.py`), whose rows are without graphs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from graphs_peers import PEERS, peer_main
from torch.multiprocessing.spawn import spawn

from wirecost.breakdown import PeakMemory
from wirecost.spec import Device, Experiment, Plan, Workload, validate
from wirecost.spec.experiment import Scaling
from wirecost.spec.network import Network
from wirecost.spec.presets import named
from wirecost.train.clock import DeviceClock
from wirecost.train.groups import communication_options
from wirecost.train.loop import TrainedIteration, train

TP: dict[str, Any] = {"tensor_parallel": 2}
SP: dict[str, Any] = {**TP, "sequence_parallel": True}
COMPILED: dict[str, Any] = {"compile": True}
ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("gpt-1.3b", "ddp", {"data_parallel": "ddp"}),
    ("gpt-1.3b", "tp2", TP),
    ("gpt-1.3b", "tp2-sp", SP),
    ("gpt-1.3b", "tp2-compiled", {**TP, **COMPILED}),
    ("gpt-1.3b", "tp2-sp-compiled", {**SP, **COMPILED}),
    ("gpt-350m", "ddp", {"data_parallel": "ddp"}),
    ("gpt-350m", "tp2", TP),
    ("gpt-350m", "zero1", {"data_parallel": "zero1"}),
    ("gpt-350m", "zero2", {"data_parallel": "zero2"}),
    ("gpt-350m", "zero3", {"data_parallel": "zero3"}),
]
MICRO_BATCH = 4
QUEUES = "8"
"""Hardware queues, as the engine has with graphs."""
TINY = {"layers": 2, "hidden": 64, "heads": 4, "vocab_size": 512, "sequence_length": 32}


def full(model: str) -> Workload:
    return validate(Workload, named("workload", model), "workload")


def tiny(model: str) -> Workload:
    return Workload.model_validate({"name": model, **TINY})


def experiment_of(options: argparse.Namespace, model: str, plan: dict[str, Any], *, graphs: bool) -> Experiment:
    workload = options.workload_of(model)
    settings = {"name": "plan", "precision": "bf16", **plan, "graphs": graphs}
    return Experiment(
        workload=workload, plan=Plan.model_validate(settings),
        network=validate(Network, named("network", "loopback"), "network"),
        scaling=Scaling.STRONG, hosts=1, ranks_per_host=options.ranks, global_batch=16, micro_batch=MICRO_BATCH,
        iterations=options.iterations, warmup=options.warmup, device=Device(options.device),
    )  # fmt: skip


def medians_ms(samples: list[dict[Any, int]]) -> dict[str, float]:
    """Returns the median of each value over samples in nanoseconds, in milliseconds."""
    return {str(key): statistics.median(s.get(key, 0) for s in samples) * 1e-6 for key in samples[0]}


def leave_marks_out() -> None:
    """Leaves the events that measure out of graphs that are captured from now on. Phases and parts then mean
    nothing, and only the iteration is measured."""
    now = DeviceClock.now

    def before_the_capture(clock: DeviceClock) -> Any:
        return clock._anchor if torch.cuda.is_current_stream_capturing() else now(clock)

    DeviceClock.now = before_the_capture  # type: ignore[method-assign]


def rank_main(rank: int, options: argparse.Namespace, number: int, folder: str) -> None:
    """Trains a row on one rank. The first rank writes the results to `folder`."""
    cuda = options.device == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", QUEUES)
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=options.ranks,
        device_id=device if cuda else None, pg_options=communication_options("nccl") if cuda else None,
    )  # fmt: skip
    model, _, plan = ROWS[number]
    for kind in ("eager",) if options.eager else ("eager", "graphs", "unmarked"):
        case = experiment_of(options, model, plan, graphs=kind != "eager")
        if kind == "unmarked":
            leave_marks_out()
        tokens = np.random.default_rng(0).integers(0, case.workload.vocab_size, 1 << 18).astype(np.uint16)
        peaks: list[PeakMemory] = []
        done = [
            d for d in train(case, tokens, device, on_peak_memory=peaks.append) if isinstance(d, TrainedIteration)
        ]
        measured = [d.sample for d in done if not d.warmup]
        result = {
            "ms": statistics.median(s.end_ns - s.start_ns for s in measured) * 1e-6,
            "host_ms": statistics.median(s.host_issue_ns or 0 for s in measured) * 1e-6,
            "losses": [d.loss for d in done],
            "phases": medians_ms([s.phases for s in measured]),
            "parts": medians_ms([s.parts.model_dump() for s in measured]),
            "gib": peaks[0].peak_bytes / 2**30 if peaks else None,
        }  # fmt: skip
        if rank == 0:
            Path(folder, f"{kind}.json").write_text(json.dumps(result))
        torch.cuda.empty_cache()
    dist.barrier()
    os._exit(0)


def row_of(options: argparse.Namespace, number: int, rank_main: Callable[..., None] = rank_main) -> dict[str, Any]:
    """Returns the results of a row, without those that failed."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            spawn(rank_main, (options, number, folder), options.ranks)
        except Exception as error:  # noqa: BLE001 - the next row may train
            lines = [line for line in str(error).splitlines() if line.strip()]
            results["error"] = lines[-1] if lines else type(error).__name__
            if options.errors:
                sys.stderr.write(f"{error}\n")
        for path in Path(folder).glob("*.json"):
            results[path.stem] = json.loads(path.read_text())
    return results


def line_of(results: dict[str, Any], model: str, name: str) -> str:
    eager, graphs = results.get("eager"), results.get("graphs")
    line = f"{model:<9} {name:<24}"
    if eager:
        line += f" {eager['ms']:8.1f} {eager['host_ms']:8.1f}"
    differs = loss_difference(results)
    if graphs and eager and differs is not None:
        line += f"    {graphs['ms']:8.1f} {graphs['host_ms']:8.1f}  {differs:12.1e}"
        line += f" {eager['gib']:4.1f} {graphs['gib']:12.1f}"
        if unmarked := results.get("unmarked"):
            line += f"  {unmarked['ms']:8.1f} {graphs['ms'] / unmarked['ms'] - 1:+7.1%}"
    return line + f"  {results.get('error', '')[:150]}"


def loss_difference(results: dict[str, Any]) -> float | None:
    """Returns the largest relative difference of a loss with graphs; None without one of both."""
    if "graphs" not in results or "eager" not in results:
        return None
    both = zip(results["eager"]["losses"], results["graphs"]["losses"], strict=False)
    return max(abs(a - b) / abs(a) for a, b in both if a is not None)


def write_csv(path: Path, everything: dict[str, Any], card: str) -> None:
    """Writes a line for each row that was run; an empty cell is unknown."""
    head = "date,card,model,plan,hardware_queues,eager_ms,eager_host_ms,graphs_ms,graphs_host_ms"
    lines = [f"{head},unmarked_ms,max_loss_difference,eager_gib,graphs_gib,error"]
    for name, results in everything.items():
        queues = "1" if "megatron" in name else os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", QUEUES)
        eager, graphs = results.get("eager", {}), results.get("graphs", {})
        values = [eager.get("ms"), eager.get("host_ms"), graphs.get("ms"), graphs.get("host_ms")]
        values.append(results.get("unmarked", {}).get("ms"))
        differs = loss_difference(results)
        cells = [
            time.strftime("%Y-%m-%d", time.gmtime()), card, *name.split("/"), queues,
            *("" if v is None else f"{v:.1f}" for v in values),
            "" if differs is None else f"{differs:.1e}",
            *("" if v is None else f"{v:.1f}" for v in (eager.get("gib"), graphs.get("gib"))),
            '"' + results.get("error", "").replace('"', "'")[:150] + '"' if "error" in results else "",
        ]  # fmt: skip
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="rows, as MODEL/PLAN")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--eager", action="store_true", help="no graphs")
    parser.add_argument("--peers", action="store_true", help="also Megatron-Core, DTensor and FSDP2")
    parser.add_argument("--seconds", type=float, default=540, help="no row begins later")
    parser.add_argument("--errors", action="store_true", help="print tracebacks")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path, help="with date and card")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    options.micro_batch, options.workload_of = MICRO_BATCH, tiny if options.tiny else full
    card = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{options.ranks} x {card}, PyTorch {torch.__version__}, BF16, global batch 16 in micro-batches of 4")
    print(
        "model     plan                          ms  host ms   graphs ms  host ms  loss differs  GiB  with graphs"
        "  unmarked   marks"
    )
    everything = {}
    rows = [(model, name, number, rank_main) for number, (model, name, _) in enumerate(ROWS)]
    if options.peers:
        rows += [(model, name, number, peer_main) for number, (model, name) in enumerate(PEERS)]
    for model, name, number, main_of_rank in rows:
        if options.only and f"{model}/{name}" not in options.only:
            continue
        if name.startswith("megatron") and (options.device == "cpu" or find_spec("megatron") is None):
            print(f"{model:<9} {name:<24} Megatron-Core is not installed, or has no GPU: not measured", flush=True)
            continue
        if time.monotonic() > deadline:
            print(f"{model:<9} {name:<24} not run: no time left", flush=True)
            continue
        begun = time.monotonic()
        results = everything[f"{model}/{name}"] = row_of(options, number, main_of_rank)
        print(f"{line_of(results, model, name)}  ({time.monotonic() - begun:.0f} s)", flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1))
        if options.csv:
            write_csv(options.csv, everything, card)


if __name__ == "__main__":
    main()
