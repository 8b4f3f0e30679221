"""A plain PyTorch job on GPUs that times itself, as an unchanged job for `wirecost run`.

    wirecost run --networks nvlink,shm,emulated-20g,emulated-10g -- python benchmarks/gpu_job.py --own-times times
    python benchmarks/gpu_job.py --report times     # the job's own median, after the warm-up

It trains a transformer of GPT-2-Medium's dimensions with DistributedDataParallel or FSDP2 (`--fsdp`) in BF16.
Tokens are random. `--own-times` appends the times of rank 0's iterations in seconds to a file for each start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

VOCABULARY, HIDDEN, LAYERS, HEADS = 50_304, 1024, 24, 16
WARMUP = 10


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, 0.0, "gelu", batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return torch.nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens.flatten())


def train(options: argparse.Namespace) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    model: torch.nn.Module = Model().cuda()
    if options.fsdp:
        from torch.distributed.fsdp import fully_shard

        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer)  # type: ignore[arg-type]
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, VOCABULARY, (options.micro_batch, 1024), device="cuda")
    times_s = []
    begun_s = time.perf_counter()
    for _ in range(options.iterations):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        now_s = time.perf_counter()
        times_s.append(now_s - begun_s)
        begun_s = now_s
        if options.own_times and dist.get_rank() == 0:
            with Path(f"{options.own_times}-{os.getpid()}").open("a") as file:
                file.write(f"{times_s[-1]}\n")
    dist.destroy_process_group()


def report(prefix: Path) -> None:
    for path in sorted(prefix.parent.glob(f"{prefix.name}-*"), key=os.path.getmtime):
        times_s = [float(line) for line in path.read_text().split()][WARMUP:]
        if times_s:
            print(f"{path}: median {1e3 * statistics.median(times_s):.2f} ms of {len(times_s)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--own-times", help="append the times of rank 0's iterations to PATH-PID")
    parser.add_argument("--report", type=Path, help="print the medians of the times in PATH-*")
    options = parser.parse_args()
    if options.report:
        report(options.report)
    else:
        train(options)


if __name__ == "__main__":
    main()
