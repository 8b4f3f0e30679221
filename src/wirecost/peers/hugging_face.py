"""Hugging Face's Llama with FSDP2: `python -m wirecost.peers.hugging_face --workload NAME --micro-batch N`.

It trains on random tokens in BF16, with parameters, gradients and optimizer states sharded over all ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from itertools import count
from typing import Any

from wirecost.errors import WirecostError
from wirecost.peers.llama import llama_workload
from wirecost.spec.workload import Workload


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", required=True, help="name of a preset of family llama")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a rank in an iteration")
    parser.add_argument("--iterations", type=int, help="default: 30, or without end when measured")
    options = parser.parse_args()
    try:
        workload = llama_workload(options.workload)
        if find_spec("transformers") is None:
            raise WirecostError("Hugging Face's models are missing: pip install transformers")
    except WirecostError as error:
        print(f"wirecost: {error}", file=sys.stderr, flush=True)
        return 2
    measured = bool(os.environ.get("WIRECOST_JOB"))
    train(workload, options.micro_batch, options.iterations or (None if measured else 30))
    return 0


def train(workload: Workload, micro_batch: int, iterations: int | None) -> None:
    """Trains in this rank, whose place is in torchrun's environment variables.

    Args:
        micro_batch: number of sequences.
        iterations: None trains until the process is ended.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    on_gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=workload.vocab_size,
        hidden_size=workload.hidden,
        intermediate_size=workload.ffn,
        num_hidden_layers=workload.layers,
        num_attention_heads=workload.heads,
        num_key_value_heads=workload.key_value_heads,
        head_dim=workload.head_size,
        max_position_embeddings=workload.sequence_length,
        tie_word_embeddings=False,
        use_cache=False,
    )
    model: Any = LlamaForCausalLM(config)
    model.to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    shape = (micro_batch, workload.sequence_length)
    tokens = torch.randint(0, workload.vocab_size, shape, device=device)
    begun_s = time.perf_counter()
    for number in count() if iterations is None else range(iterations):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()  # waits for the device
        ended_s = time.perf_counter()
        if dist.get_rank() == 0:
            sys.stdout.write(f"iteration {number}: {1e3 * (ended_s - begun_s):.3f} ms, loss {value:.4f}\n")
            sys.stdout.flush()
        begun_s = ended_s
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
