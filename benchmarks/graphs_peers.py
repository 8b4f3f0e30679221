"""The peers of `graphs.py`: Megatron-Core's local layer spec, PyTorch's DTensor and FSDP2, each on two ranks.

All train the same dimensions in BF16 with fused AdamW, a global batch of 16 in micro-batches of 4. Embedding and
vocabulary layer of DTensor's decoder are divided over the ranks as well, with the loss computed from the parts
(`loss_parallel`), and they don't share their weight. FSDP2 gathers and reduces in BF16 in every micro-batch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from engine_timing import Section
from job_models import Decoder, Size
from torch import nn

from wirecost.spec import Workload

PEERS = [
    ("gpt-1.3b", "megatron-tp2"),
    ("gpt-1.3b", "dtensor-tp2"),
    ("gpt-1.3b", "dtensor-tp2-sp"),
    ("gpt-1.3b", "dtensor-tp2-compiled"),
    ("gpt-1.3b", "dtensor-tp2-sp-compiled"),
    ("gpt-350m", "fsdp2"),
    ("gpt-350m", "fsdp2-compiled"),
]
GLOBAL_BATCH = 16


def decoder_of(workload: Workload, device: torch.device) -> Decoder:
    size = Size(workload.vocab_size, workload.hidden, workload.layers, workload.heads)
    torch.manual_seed(1)
    with device:
        return Decoder(size, workload.sequence_length)


def with_dtensor(section: Section, *, sequence: bool) -> nn.Module:
    """Returns a decoder that is divided over all ranks, with sequence parallelism or without."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    model = decoder_of(section.workload, section.device).bfloat16()
    mesh = init_device_mesh(section.device.type, (section.world,))
    between: Any = Shard(1) if sequence else Replicate()
    into, out = ColwiseParallel(input_layouts=between), RowwiseParallel(output_layouts=between)
    plan: dict[str, Any] = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "layers.*.qkv": into, "layers.*.out": out, "layers.*.up": into, "layers.*.down": out,
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }  # fmt: skip
    if sequence:
        norms = ("layers.*.norm_1", "layers.*.norm_2", "norm")
        plan |= dict.fromkeys(norms, SequenceParallel())
        model.first_position = section.rank * (section.workload.sequence_length // section.world)
    return parallelize_module(model, mesh, plan)


def with_fsdp2(section: Section) -> nn.Module:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = decoder_of(section.workload, section.device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def iteration_of(section: Section, name: str) -> tuple[Callable[[], None], int]:
    """Returns an iteration of a peer, and the number of its parameters on this rank."""
    ranks = 1 if "tp2" in name else section.world
    micro_batches = GLOBAL_BATCH // (section.micro_batch * ranks)
    if name == "megatron-tp2":
        from engine_sides import megatron_iteration

        peer = megatron_iteration(section, section.world)

        def iteration() -> None:
            for number in range(micro_batches):
                peer.run(number == micro_batches - 1)

        return iteration, peer.parameters
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import loss_parallel

    by_tensor = name.startswith("dtensor")
    model: Any = with_dtensor(section, sequence="-sp" in name) if by_tensor else with_fsdp2(section)
    if name.endswith("compiled"):
        for layer in model.layers:
            layer.compile()
    divided = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    groups = [{"params": part} for part in (divided, whole) if part]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=section.cuda)

    def train() -> None:
        for _ in range(micro_batches):
            with loss_parallel() if by_tensor else contextlib.nullcontext():
                model(section.batch_on_device()["inputs"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    parameters = sum(p.to_local().numel() for p in divided) + sum(p.numel() for p in whole)
    return train, parameters


def peer_main(rank: int, options: argparse.Namespace, number: int, folder: str) -> None:
    """Times a peer on one rank. The first rank writes the results to `folder`."""
    model, name = PEERS[number]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks))
    # Megatron-Core wants one hardware queue.
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1" if name.startswith("megatron") else "8"
    settings = argparse.Namespace(
        device=options.device, model=model, tiny=False, micro_batch=options.micro_batch,
        iterations=options.iterations, warmup=options.warmup,
    )  # fmt: skip
    section = Section(settings)
    section.workload = options.workload_of(model)
    vocabulary, length = section.workload.vocab_size, section.workload.sequence_length
    tokens = torch.randint(0, vocabulary, (4, settings.micro_batch, length + 1))
    section.batches = [{"inputs": t[:, :-1], "targets": t[:, 1:]} for t in tokens]
    dist.init_process_group(
        "nccl" if section.cuda else "gloo", init_method=f"file://{folder}/store", rank=rank,
        world_size=options.ranks, device_id=section.device if section.cuda else None,
    )  # fmt: skip
    iteration, parameters = iteration_of(section, name)
    result = section.result(name, iteration, parameters)
    if rank == 0:
        found = {"ms": result.median_ms, "host_ms": result.issue_ms, "gib": result.peak_gib}
        Path(folder, "eager.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)
