"""A training job in plain PyTorch that times itself and knows nothing of wirecost, for `jobs_on_gpus.py`.

    torchrun --nproc-per-node 2 benchmarks/train_job.py --model hf-gpt2 --parallel ddp
    wirecost run --networks nvlink,emulated-20g -- python benchmarks/train_job.py --model hf-llama --parallel fsdp2

Models: Hugging Face's GPT-2-Medium and TinyLlama 1.1B from their configurations, a decoder of GPT-2-Medium's
dimensions, and a small one. They are trained in BF16 on random tokens, each rank on `--micro-batch` sequences:
with DistributedDataParallel and autocast; with FSDP2 and autocast, or BF16 parameters and gradients
(`fsdp2-bf16`); with tensor parallelism of DTensor, or a 1F1B pipeline of PyTorch, in BF16. `--graphs` captures
each layer's passes in CUDA graphs. `--slow R` gives the last rank R times the sequences. Each rank writes the
seconds of its iterations to PREFIX-RANK, where the environment variable OWN_TIMES is PREFIX.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from job_models import Decoder, build, loss_of, size_of

Step = Callable[[], None]
PIPELINE_MICRO_BATCHES = 4


def data_parallel(options: argparse.Namespace, device: torch.device) -> tuple[Step, torch.optim.Optimizer]:
    """Returns forward and backward of DistributedDataParallel or FSDP2, and the optimizer."""
    model, layers = build(options.model, options.sequence, tiny=options.tiny)
    model.to(device)
    batch = options.micro_batch
    if options.slow and dist.get_rank() == dist.get_world_size() - 1:
        batch = round(batch * options.slow)
    tokens = random_tokens(options, batch, device)
    if options.compile:
        for layer in layers:
            layer.compile()
    if options.graphs and device.type == "cuda":
        capture(layers, options, batch, device)
    if options.parallel == "ddp":
        ids = [device.index] if device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
    else:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        in_bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        policy = in_bf16 if options.parallel == "fsdp2-bf16" else MixedPrecisionPolicy()
        for layer in layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    autocast = options.parallel != "fsdp2-bf16"

    def step() -> None:
        # Casts are not kept for backward's graphs, which were captured without them.
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast, cache_enabled=not options.graphs):
            loss = model(tokens)
        loss.backward()

    return step, optimizer


def capture(layers: Any, options: argparse.Namespace, batch: int, device: torch.device) -> None:
    """Replaces each layer's passes by CUDA graphs, before DistributedDataParallel wraps the model."""
    shape = (batch, options.sequence, size_of(options.model, tiny=options.tiny).hidden)
    # Each layer keeps its input in its own sample, from forward to backward.
    samples = [(torch.randn(shape, device=device, requires_grad=True),) for _ in layers]
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
        torch.cuda.make_graphed_callables(tuple(layers), tuple(samples))


def tensor_parallel(options: argparse.Namespace, device: torch.device) -> tuple[Step, torch.optim.Optimizer]:
    """Returns forward and backward of a decoder whose layers DTensor divides over all ranks, and the optimizer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(1)  # what is not divided is the same on all ranks
    model, layers = build(options.model, options.sequence, tiny=options.tiny)
    model.to(device, torch.bfloat16)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    plan: dict[str, Any] = {
        "qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(),
    }  # fmt: skip
    for layer in layers:
        parallelize_module(layer, mesh, plan)
    tokens = random_tokens(options, options.micro_batch, device)
    divided = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    # A fused step takes parameters of one kind.
    groups = [{"params": divided}, {"params": whole}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=device.type == "cuda")
    return lambda: model(tokens).backward(), optimizer


def pipeline(options: argparse.Namespace, device: torch.device) -> tuple[Step, torch.optim.Optimizer]:
    """Returns an iteration of a 1F1B pipeline with a stage on each rank, and this stage's optimizer."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, stages = dist.get_rank(), dist.get_world_size()
    size = size_of(options.model, tiny=options.tiny)
    model = Decoder(size, options.sequence, stage=rank, stages=stages).to(device, torch.bfloat16)
    stage = PipelineStage(model, rank, stages, device)
    schedule = Schedule1F1B(stage, PIPELINE_MICRO_BATCHES, loss_fn=loss_of)
    tokens = random_tokens(options, options.micro_batch, device)

    def step() -> None:
        if rank == 0:
            schedule.step(tokens)
        elif rank == stages - 1:
            schedule.step(target=tokens)
        else:
            schedule.step()

    return step, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")


def random_tokens(options: argparse.Namespace, batch: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    size = 512 if options.tiny else 8192
    return torch.randint(0, size, (batch, options.sequence), generator=generator).to(device)


def train(options: argparse.Namespace) -> None:
    cuda = options.device == "cuda"
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo")
    parallel = {"tp": tensor_parallel, "pp": pipeline}.get(options.parallel, data_parallel)
    step, optimizer = parallel(options, device)
    prefix = os.environ.get("OWN_TIMES")
    with Path(f"{prefix}-{dist.get_rank()}" if prefix else os.devnull).open("w", buffering=1) as own:
        begun_s = time.perf_counter()
        for _ in range(options.iterations):
            step()
            optimizer.step()
            optimizer.zero_grad()
            if cuda:
                torch.cuda.synchronize()
            ended_s = time.perf_counter()
            own.write(f"{ended_s - begun_s}\n")
            begun_s = ended_s
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("hf-gpt2", "hf-llama", "decoder", "small"), default="decoder")
    parser.add_argument("--parallel", choices=("ddp", "fsdp2", "fsdp2-bf16", "tp", "pp"), default="ddp")
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences of a rank; of all in pp and tp")
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--compile", action="store_true", help="torch.compile each layer")
    parser.add_argument("--graphs", action="store_true", help="each layer's passes in CUDA graphs, on GPUs")
    parser.add_argument("--slow", type=float, help="the last rank has so many times the sequences")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model for checking that it runs")
    options = parser.parse_args()
    if (options.graphs or options.parallel in ("tp", "pp")) and options.model.startswith("hf-"):
        parser.error("--graphs, tp and pp are for the models decoder and small")
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
