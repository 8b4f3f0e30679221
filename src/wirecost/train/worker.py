"""One rank of an experiment: `python -m wirecost.train.worker DIRECTORY`.

Reads `experiment.json` and `tokens.json` there and the rank from the environment (RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, as torchrun sets them); appends one JSON line for each iteration to
`samples/rank-R.jsonl` and, if it fails, writes `failures/rank-R.json` with the traceback.
"""

from __future__ import annotations

import ctypes
import datetime
import faulthandler
import json
import os
import signal
import sys
import traceback
from pathlib import Path

PR_SET_PDEATHSIG = 1
EXIT_FAILED = 3
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed")
"""What gloo says when a connection ends: on reading, or on writing (strerror of ECONNRESET and EPIPE)."""


def main() -> int:
    # A rank outlives its launcher in no case, however that dies.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The launcher asks a rank that hangs where it is.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    directory, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    try:
        run_rank(directory, rank)
    except BaseException as error:  # noqa: BLE001 - whatever ends a rank is reported with its traceback
        report_failure(directory, rank, error)
        # Straight out: interpreter shutdown can hang or abort in a library's threads after a failure.
        sys.stderr.flush()
        os._exit(EXIT_FAILED)
    return 0


def run_rank(directory: Path, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from wirecost.corpus import load_tokens
    from wirecost.spec import Device, Experiment
    from wirecost.train.loop import train

    experiment = Experiment.model_validate_json((directory / "experiment.json").read_bytes())
    tokens_path = Path(json.loads((directory / "tokens.json").read_bytes())["path"])
    tokens = load_tokens(tokens_path, experiment.workload.sequence_length)
    timeout = datetime.timedelta(seconds=float(experiment.timeout))
    if experiment.device is Device.CUDA:
        # One machine's GPUs are dealt out to the ranks, whichever host each of them plays.
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=timeout, device_id=device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        dist.init_process_group("gloo", timeout=timeout)
    try:
        with (directory / "samples" / f"rank-{rank}.jsonl").open("w", buffering=1) as samples:
            for done in train(experiment, tokens, device):
                sample = done.sample
                line = {
                    "iteration": done.index,
                    "warmup": done.warmup,
                    "loss": done.loss,
                    "start_ns": sample.start_ns,
                    "end_ns": sample.end_ns,
                    "phases": sample.phases,
                    "parts": sample.parts.model_dump(),
                    "communications": [vars(c) for c in sample.communications],
                }
                samples.write(json.dumps(line) + "\n")
        dist.barrier()
    finally:
        # Without it some gloo ranks abort at exit.
        dist.destroy_process_group()


def classify(error: BaseException) -> str:
    """`oom`, `diverged`, `lost_peer` (another rank went away first) or `error`."""
    text = str(error)
    if (
        isinstance(error, MemoryError)
        or "can't allocate memory" in text
        or type(error).__name__ == "OutOfMemoryError"
    ):
        return "oom"
    if type(error).__name__ == "NonFiniteLossError":
        return "diverged"
    if any(sign in text for sign in LOST_PEER):
        return "lost_peer"
    return "error"


def report_failure(directory: Path, rank: int, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(text)
    folder = directory / "failures"
    folder.mkdir(exist_ok=True)
    failure = {
        "rank": rank,
        "kind": classify(error),
        "reason": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
        "traceback": text,
    }
    partial = folder / f".rank-{rank}.json"
    partial.write_text(json.dumps(failure))
    partial.rename(folder / f"rank-{rank}.json")


if __name__ == "__main__":
    sys.exit(main())
