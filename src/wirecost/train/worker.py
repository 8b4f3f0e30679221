"""One rank of an experiment: `python -m wirecost.train.worker DIRECTORY`.

Reads `experiment.json` and `tokens.json` there and the rank from the environment (RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, as torchrun sets them); appends one JSON line for each iteration to
`samples/rank-R.jsonl`, one for each checkpoint or validation to `events/rank-R.jsonl`; writes its peak of memory
to `memory/rank-R.json` and, if it fails, `failures/rank-R.json` with the traceback.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from wirecost.launch.rank import run_as_rank
from wirecost.launch.rendezvous import meet
from wirecost.storage import LineFile, naming, write_file

if TYPE_CHECKING:
    from wirecost.breakdown import PeakMemory
    from wirecost.train.engine import Engine
    from wirecost.train.periodic import TrainedEvent


def main() -> NoReturn:
    run_as_rank(Path(sys.argv[1]), run_rank)


def run_here(directory: Path) -> NoReturn:
    """`main` in a process that was forked instead of started."""
    run_as_rank(directory, run_rank)


def preload() -> None:
    """Imports what a rank needs, in a process that ranks are forked from: it takes seconds. To be started with
    OMP_NUM_THREADS=1, so that no library starts threads, which forked ranks would lack."""
    import torch._dynamo  # noqa: F401 - PyTorch's optimizers load it

    import wirecost.corpus
    import wirecost.train.loop  # noqa: F401


def run_rank(directory: Path, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from wirecost.corpus import load_tokens
    from wirecost.spec import Device, Experiment
    from wirecost.train.loop import train
    from wirecost.train.models import examples_for
    from wirecost.train.periodic import TrainedEvent

    experiment = Experiment.model_validate_json((directory / "experiment.json").read_bytes())
    tokens_path = Path(json.loads((directory / "tokens.json").read_bytes())["path"])
    tokens = load_tokens(tokens_path, examples_for(experiment.workload).length)
    timeout = datetime.timedelta(seconds=float(experiment.timeout))
    group: dict[str, Any] = {
        "store": meet(timeout),
        "rank": rank,
        "world_size": experiment.ranks,
        "timeout": timeout,
    }
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if experiment.device is Device.CUDA:
        # The most there can be: streams that share a hardware queue hold each other up.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        # One machine's GPUs are dealt out to the ranks, whichever host each of them plays.
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, **group)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", **group)
    checkpoints = directory / "checkpoints"
    trace = directory / "traces" / f"rank-{rank}.json.gz"
    peaked = partial(_keep, directory / "memory" / f"rank-{rank}.json")
    with LineFile(directory / "samples" / f"rank-{rank}.jsonl") as samples:
        for done in train(
            experiment, tokens, device, checkpoints=checkpoints, trace=trace, built=_spare, peaked=peaked
        ):
            if isinstance(done, TrainedEvent):
                _note(directory / "events" / f"rank-{rank}.jsonl", done)
                continue
            sample = done.sample
            line = {
                "iteration": done.index,
                "warmup": done.warmup,
                "loss": done.loss,
                "start_ns": sample.start_ns,
                "end_ns": sample.end_ns,
                "phases": sample.phases,
                "parts": sample.parts.model_dump(),
                "host_issue_ns": sample.host_issue_ns,
                "kept_pace": sample.kept_pace,
                "communications": [vars(c) for c in sample.communications],
            }
            samples.write(json.dumps(line))
    dist.barrier()
    if rank == 0 and checkpoints.exists():
        # They were written for what writing them costs; a study's results keep no weights.
        shutil.rmtree(checkpoints)
    if device.type == "cuda":
        # NCCL wants to be told; gloo's threads are better left alone (see `network.rank.leave`).
        dist.destroy_process_group()


def _spare(_: Engine) -> None:
    """Spares libraries and model from garbage collection: a full one goes through their 300,000 objects, which
    takes this rank 0.2 to 0.5 s, and every other that waits for it."""
    gc.freeze()


def _keep(path: Path, peak: PeakMemory) -> None:
    path.parent.mkdir(exist_ok=True)
    write_file(path, peak.model_dump_json(indent=1))


def _note(path: Path, event: TrainedEvent) -> None:
    path.parent.mkdir(exist_ok=True)
    with naming(path), path.open("a") as events:
        events.write(json.dumps(vars(event)) + "\n")


if __name__ == "__main__":
    main()
