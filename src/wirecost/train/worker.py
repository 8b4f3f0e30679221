"""Runs one rank of an experiment: `python -m wirecost.train.worker DIRECTORY`.

The rank reads `experiment.json` and `tokens.json` in the directory. It takes RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT from the environment, as torchrun sets them. It writes to the directory:

    samples/rank-R.jsonl     one JSON line for each iteration
    events/rank-R.jsonl      one JSON line for each checkpoint or validation
    memory/rank-R.json       the peak memory
    failures/rank-R.json     the error with its traceback, if the rank fails
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import resource
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from wirecost.launch.rank import run_as_rank
from wirecost.launch.rendezvous import meet
from wirecost.storage import LineFile, naming, write_file

if TYPE_CHECKING:
    import torch

    from wirecost.breakdown import PeakMemory
    from wirecost.train.engine import Engine
    from wirecost.train.periodic import TrainedEvent


def main() -> NoReturn:
    """Runs the rank of this module's command line."""
    run_as_rank(Path(sys.argv[1]), run_rank)


def run_here(directory: Path) -> NoReturn:
    """Runs a rank in this process, which was forked instead of started."""
    run_as_rank(directory, run_rank)


def preload() -> None:
    """Imports what a rank needs in the process from which ranks are forked, because the imports take seconds.

    The process must have been started with OMP_NUM_THREADS=1. Otherwise libraries start threads, which forked
    ranks lack.
    """
    import torch._dynamo  # noqa: F401 - PyTorch's optimizers import it

    import wirecost.corpus
    import wirecost.train.loop  # noqa: F401


def run_rank(directory: Path, rank: int) -> None:
    """Trains one rank of the experiment in `directory`, and writes its results there."""
    import torch
    import torch.distributed as dist

    from wirecost.corpus import load_text
    from wirecost.spec import Device, Experiment
    from wirecost.train.groups import communication_options
    from wirecost.train.loop import train
    from wirecost.train.models import examples_for
    from wirecost.train.periodic import TrainedEvent

    experiment = Experiment.model_validate_json((directory / "experiment.json").read_bytes())
    tokens_path = Path(json.loads((directory / "tokens.json").read_bytes())["path"])
    tokens = load_text(tokens_path, examples_for(experiment.workload).length)
    timeout = datetime.timedelta(seconds=float(experiment.timeout))
    group: dict[str, Any] = {
        "store": meet(timeout, directory),
        "rank": rank,
        "world_size": experiment.ranks,
        "timeout": timeout,
    }
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if experiment.device is Device.CUDA:
        # Streams that share a hardware queue delay each other, and 32 queues are the maximum. The branches of a
        # graph are distributed over queues too, and the queues wait for each other: a tensor-parallel
        # iteration of GPT-1.3B takes 4 % longer on two H200 with 32 than with CUDA's default of 8.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "8" if experiment.plan.graphs else "32")
        # The GPUs of the machine are assigned to the ranks in turn, independently of their emulated hosts.
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, pg_options=communication_options("nccl"), **group)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", **group)
    if experiment.memory is not None:
        _limit_memory(experiment.memory, device)
    checkpoints = directory / "checkpoints"
    trace = directory / "traces" / f"rank-{rank}.json.gz"
    with LineFile(directory / "samples" / f"rank-{rank}.jsonl") as samples:
        for step in train(
            experiment,
            tokens,
            device,
            checkpoints=checkpoints,
            trace=trace,
            on_engine=_freeze_objects,
            on_peak_memory=partial(_write_peak, directory / "memory" / f"rank-{rank}.json"),
        ):
            if isinstance(step, TrainedEvent):
                _append_event(directory / "events" / f"rank-{rank}.jsonl", step)
                continue
            sample = step.sample
            line = {
                "iteration": step.index,
                "warmup": step.warmup,
                "loss": step.loss,
                "start_ns": sample.start_ns,
                "end_ns": sample.end_ns,
                "phases": sample.phases,
                "parts": sample.parts.model_dump(),
                "host_issue_ns": sample.host_issue_ns,
                "kept_pace": sample.kept_pace,
                "expert_load": sample.expert_load,
                "replayed": sample.replayed,
                "communications": [vars(c) for c in sample.communications],
            }
            samples.write(json.dumps(line))
    dist.barrier()
    if rank == 0 and checkpoints.exists():
        # Checkpoints were written to measure the time of writing. A study's results keep no weights.
        shutil.rmtree(checkpoints)
    if device.type == "cuda":
        # NCCL needs this call. Gloo's threads may hang or abort in it (see `wirecost.launch.rank.leave`).
        dist.destroy_process_group()


def _limit_memory(limit_bytes: int, device: torch.device) -> None:
    """Limits the memory of this rank: that of PyTorch's allocator on a GPU, else the private memory of the process
    (RLIMIT_DATA, setrlimit(2)). Beyond it, an allocation fails as on a device of that size.
    """
    import torch

    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    else:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _freeze_objects(_: Engine) -> None:
    """Excludes the existing objects from garbage collection.

    A full collection visits 300,000 objects of the libraries and the model. It takes this rank 0.2 to 0.5 s, in
    which the other ranks wait for it.
    """
    gc.freeze()


def _write_peak(path: Path, peak: PeakMemory) -> None:
    path.parent.mkdir(exist_ok=True)
    write_file(path, peak.model_dump_json(indent=1))


def _append_event(path: Path, event: TrainedEvent) -> None:
    path.parent.mkdir(exist_ok=True)
    with naming(path), path.open("a") as events:
        events.write(json.dumps(vars(event)) + "\n")


if __name__ == "__main__":
    main()
