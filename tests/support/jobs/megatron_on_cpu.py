"""Runs `wirecost.megatron` on CPUs with gloo, with PyTorch's calls to CUDA replaced.

Megatron-Core itself can't do this. It only shows that the arguments and the training loop are right.

    python megatron_on_cpu.py SETTINGS [ITERATIONS [RANKS]]

With RANKS, the process forks itself into so many ranks, so that the libraries are loaded once.
"""

import os
import sys
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import megatron.core  # noqa: F401 - before PyTorch is changed
import torch
from torch.overrides import TorchFunctionMode

from wirecost.megatron.training import train
from wirecost.spec.megatron import settings_from


class OnCpu(TorchFunctionMode):
    """Puts tensors that are asked for on a GPU on the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.type and len(args) == 1:
            # Megatron's optimizers accept parameters of CUDA's types only.
            return function(*args).replace("torch.", "torch.cuda.")
        placed = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return function(*map(_on_cpu, args), **placed)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        return "cpu"
    return value


class Stream:
    """Does nothing in place of a CUDA stream."""

    def wait_stream(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


def _nothing(*_: object, **__: object) -> None:
    pass


cuda: Any = torch.cuda
cuda.current_device = lambda: "cpu"
cuda.device_count = lambda: 1
cuda.set_device = cuda.synchronize = _nothing
cuda.manual_seed = torch.manual_seed
cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
cuda.current_stream = cuda.Stream = lambda *_, **__: Stream()
cuda.nvtx.range_push = cuda.nvtx.range_pop = _nothing
tensor: Any = torch.Tensor
tensor.cuda = lambda self, *_, **__: self

if len(sys.argv) > 3:
    from support.forking import become_ranks

    rank = become_ranks(int(sys.argv[3]))
    os.environ |= {"WORLD_SIZE": sys.argv[3], "RANK": str(rank), "LOCAL_RANK": str(rank)}
with OnCpu():
    train(settings_from(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None, backend="gloo")
sys.stdout.write(f"rank {os.environ['RANK']} done\n")
