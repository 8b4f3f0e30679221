"""The training loop of Megatron-Core: process groups, DDP or the distributed optimizer, a pipeline's schedule."""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from wirecost.megatron.models import Batch, build, transformer_config
from wirecost.megatron.timers import TimerLog, timed_iterations
from wirecost.spec.megatron import MegatronJob
from wirecost.spec.plan import DataParallel, Precision

FIRST_LOSS_SCALE = 4096.0
"""First factor of the loss in FP16. A greater one makes the first iterations overflow, which have no step then."""
CLIPPING = 1.0
LEARNING_RATE = 1e-4


def train(settings: MegatronJob, iterations: int | None, backend: str = "nccl") -> None:
    """Trains in this rank, whose place is in torchrun's environment variables.

    Args:
        iterations: None trains until the process is ended.
        backend: of the process groups.
    """
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.pipeline_parallel import get_forward_backward_func

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    device = torch.device(torch.cuda.current_device())
    dist.init_process_group(backend)
    plan = settings.plan
    parallel_state.initialize_model_parallel(
        plan.tensor_parallel, plan.pipeline_parallel, create_gloo_process_groups=False
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = transformer_config(settings)
    model, optimizer = _prepare(settings, config, device)
    batch = Batch(settings, device, seed=parallel_state.get_data_parallel_rank())
    run: Any = get_forward_backward_func()
    timed = timed_iterations(os.environ)
    log = TimerLog(os.environ)
    numbers = count() if iterations is None else range(iterations)
    begun_s = time.perf_counter()
    for number in numbers:
        timers = log.timers() if number in timed else None
        for part in (config, optimizer.config):
            part.timers = timers
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run(
            forward_step_func=batch.forward,
            data_iterator=None,
            model=[model],
            num_microbatches=settings.micro_batches,
            seq_length=settings.workload.sequence_length,
            micro_batch_size=settings.micro_batch,
            decoder_seq_length=settings.workload.decoder_sequence,
            forward_only=False,
        )
        optimizer.step()
        if timers is not None:
            log.write(number, timers)
        torch.cuda.synchronize()
        ended_s = time.perf_counter()
        if (
            losses
            and parallel_state.get_data_parallel_rank() == 0 == parallel_state.get_tensor_model_parallel_rank()
        ):
            loss = float(losses[-1]["loss"])
            sys.stdout.write(f"iteration {number}: {1e3 * (ended_s - begun_s):.3f} ms, loss {loss:.4f}\n")
            sys.stdout.flush()
        begun_s = ended_s
    dist.destroy_process_group()


def _prepare(settings: MegatronJob, config: Any, device: torch.device) -> tuple[Any, Any]:
    """Returns the model with its data parallelism, and its optimizer."""
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.module import Float16Module

    plan = settings.plan
    sharded = plan.data_parallel is DataParallel.ZERO1
    overlap = plan.overlap and plan.data_parallel is not DataParallel.ALL_REDUCE
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    module: Any = build(settings, config, first=first, last=last).to(device)
    if plan.precision is not Precision.FP32:
        module = Float16Module(config, module)
    data_parallel = DistributedDataParallelConfig(
        use_distributed_optimizer=sharded,
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap and sharded,
        # Gradients are sent in the precision of the plan, as wirecost's own engine sends them.
        grad_reduce_in_fp32=False,
        # Megatron counts a bucket in parameters.
        bucket_size=plan.bucket_bytes // plan.precision.bytes_per_element if overlap else None,
    )
    model = DistributedDataParallel(config=config, ddp_config=data_parallel, module=module)
    model.broadcast_params()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=LEARNING_RATE,
            clip_grad=CLIPPING,
            fp16=plan.precision is Precision.FP16,
            bf16=plan.precision is Precision.BF16,
            params_dtype=config.params_dtype,
            initial_loss_scale=FIRST_LOSS_SCALE,
            use_distributed_optimizer=sharded,
            overlap_param_gather=overlap and sharded,
        ),
        [model],
        use_gloo_process_groups=False,
    )
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if overlap:
        config.no_sync_func = model.no_sync
    return model, optimizer
