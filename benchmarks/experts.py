"""Times training of a mixture of experts, its exchange of tokens and its grouped products on local GPUs.

    PYTHONPATH=src python benchmarks/experts.py                                 # experts divided over all GPUs
    PYTHONPATH=src python benchmarks/experts.py --device cpu --ranks 2 --tiny   # does it run?

Each row is a routing with or without the grouped kernel: the median iteration, tokens/s of all ranks, the times
of dispatch and combination (median over iterations, largest over ranks), the largest load of a rank's experts
over the mean, and how long the host takes to issue an iteration. Tokens are random.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from wirecost.breakdown import Phase
from wirecost.spec import Device, Experiment, Plan, Workload, validate
from wirecost.spec.experiment import Scaling
from wirecost.spec.network import Network
from wirecost.spec.presets import named
from wirecost.train.loop import TrainedIteration, train
from wirecost.train.models import grouped

LARGE = {"layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 4, "vocab_size": 32_000, "sequence_length": 2048}
TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocab_size": 512, "sequence_length": 32}
ROWS = [("balanced", True), ("balanced", False), ("learned", True), ("learned", False)]
"""Routing, and whether the grouped kernel is used where the device has it."""


def experiment_of(options: argparse.Namespace, routing: str) -> Experiment:
    dimensions: dict[str, Any] = TINY if options.tiny else LARGE
    workload = Workload.model_validate(
        {
            "name": "experts", "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "biases": False,
            "tied_embeddings": False, **dimensions,
            "mixture_of_experts": {
                "experts": options.experts, "top_k": options.top_k, "expert_ffn_hidden": dimensions["hidden"] // 2,
                "routing": routing,
            },
        }
    )  # fmt: skip
    return Experiment(
        workload=workload,
        plan=Plan.model_validate(
            {
                "name": "ep", "expert_parallel": options.expert_parallel or options.ranks,
                "data_parallel": options.strategy, "precision": "bf16",
            }
        ),
        network=validate(Network, named("network", "loopback"), "network"),
        scaling=Scaling.WEAK, hosts=1, ranks_per_host=options.ranks,
        global_batch=options.micro_batch * options.ranks, micro_batch=options.micro_batch,
        iterations=options.iterations, warmup=options.warmup, device=Device(options.device),
    )  # fmt: skip


def rank_main(rank: int, options: argparse.Namespace, folder: str) -> None:
    """Trains every row on one rank. The first rank prints."""
    cuda = options.device == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=options.ranks
    )
    one_kernel = grouped.one_kernel
    for routing, fused in ROWS:
        case = experiment_of(options, routing)
        grouped.one_kernel = one_kernel if fused else lambda *_: False
        tokens = np.random.default_rng(0).integers(0, case.workload.vocab_size, 1 << 18).astype(np.uint16)
        done = [d for d in train(case, tokens, device) if isinstance(d, TrainedIteration) and not d.warmup]
        samples = [d.sample for d in done]
        own = [
            statistics.median(s.end_ns - s.start_ns for s in samples) * 1e-6,
            statistics.median(s.phases.get(Phase.EXPERT_DISPATCH, 0) for s in samples) * 1e-6,
            statistics.median(s.phases.get(Phase.EXPERT_COMBINE, 0) for s in samples) * 1e-6,
            statistics.median(s.expert_load or 1.0 for s in samples),
            statistics.median(s.host_issue_ns or 0 for s in samples) * 1e-6,
        ]
        largest = torch.tensor(own, dtype=torch.float64, device=device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        ms, dispatch_ms, combine_ms, load, host_ms = largest.tolist()
        if rank == 0:
            rate = case.tokens_per_iteration / (ms * 1e-3)
            host = f"{host_ms:8.1f}" if cuda else "       -"
            kernel = "grouped" if fused else "single"
            sys.stdout.write(
                f"{routing:<9} {kernel:<8} {ms:9.1f} {rate:11.0f} {dispatch_ms:9.1f} {combine_ms:9.1f} "
                f"{load:6.2f} {host}\n"
            )
            sys.stdout.flush()
    dist.barrier()
    if cuda:
        dist.destroy_process_group()
    else:
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--ranks", type=int, help="number of ranks [default: the number of GPUs]")
    parser.add_argument("--expert-parallel", type=int, help="[default: the number of ranks]")
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.ranks = options.ranks or max(1, torch.cuda.device_count())
    card = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    parameters = sum(p.numel() for p in _meta_model(options).parameters())
    print(f"{options.ranks} x {card}, {parameters * 1e-9:.2f} billion parameters, {options.strategy}, BF16")
    print("routing   products        ms    tokens/s  dispatch   combine   load  host ms")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        spawn(rank_main, (options, folder), options.ranks)


def _meta_model(options: argparse.Namespace) -> torch.nn.Module:
    from wirecost.train.models import build_model

    with torch.device("meta"):
        return build_model(experiment_of(options, "balanced").workload)


if __name__ == "__main__":
    main()
