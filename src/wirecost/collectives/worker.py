"""One rank of a benchmark: `python -m wirecost.collectives.worker DIRECTORY`.

Reads `request.json` there and the rank from torchrun's environment variables. Rank 0 appends the samples of
every case to `samples.jsonl`; every rank appends a line to `steps/rank-R` for whatever it has got done.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from wirecost.fabric.rank import run_as_rank


def main() -> NoReturn:
    run_as_rank(Path(sys.argv[1]), run_rank)


def run_rank(directory: Path, rank: int) -> None:
    with (directory / "steps" / f"rank-{rank}").open("w", buffering=1) as steps:
        steps.write("came\n")

        import torch
        import torch.distributed as dist

        from wirecost.collectives.driver import Setup, cases, measure
        from wirecost.collectives.request import Backend, BenchRequest
        from wirecost.collectives.timing import DeviceTimer, HostTimer

        request = BenchRequest.model_validate_json((directory / "request.json").read_bytes())
        on_gpu = request.backend is Backend.NCCL
        device = _gpu(rank, request) if on_gpu else torch.device("cpu")
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        # The launcher, which can say who is missing, gives up first.
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3 * request.timeout_s))
        try:
            comm, group = _join(request, rank)
            timer = DeviceTimer() if on_gpu else HostTimer()
            setup = Setup(request, rank, group, comm, _TorchControl(), timer, device)
            steps.write("joined\n")
            with (directory / "samples.jsonl").open("a", buffering=1) as out:
                for case in cases(request):
                    gathered = measure(setup, case)
                    if gathered is not None:
                        out.write(json.dumps({"case": vars(case), "ranks": gathered}) + "\n")
                    steps.write(_step(case))
            dist.barrier()
            if comm is not None:
                comm.close()
        finally:
            # Without it some gloo ranks abort at exit.
            dist.destroy_process_group()


def _step(case: Any) -> str:
    return f"{case.collective} {case.size_bytes} B {case.mode}\n"


def _gpu(rank: int, request: Any) -> Any:
    import torch

    from wirecost.errors import UnsupportedError

    have = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if have < request.ranks:
        raise UnsupportedError(
            f"backend nccl needs a GPU for each rank: {request.ranks}, and PyTorch finds {have} here; "
            "use fewer ranks, or --backend gloo"
        )
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    # The default stream waits for others and makes them wait.
    torch.cuda.set_stream(torch.cuda.Stream(device))
    # send, receive and, while they are checked, what is expected and one rank's data
    need, (free, _) = 4 * request.largest_bytes, torch.cuda.mem_get_info(device)
    if need > free:
        raise UnsupportedError(
            f"a size of {request.largest_bytes} B needs {need >> 20} MiB on each GPU, and GPU {rank} has "
            f"{free >> 20} MiB free; lower the largest size (-e)"
        )
    return device


def _join(request: Any, rank: int) -> tuple[Any, int | None]:
    """This rank's communicator and the number of its group."""
    import torch.distributed as dist

    from wirecost.collectives.request import Backend

    mine: tuple[Any, int | None] = (None, None)
    for number, ranks in enumerate(request.groups):
        # Every rank of the world takes part in making every group.
        group = dist.new_group(list(ranks))
        if rank not in ranks:
            continue
        if request.backend is Backend.NCCL:
            from wirecost.collectives.backends.nccl import NcclCommunicator

            def share(own: bytes | None, group: Any = group, first: int = ranks[0]) -> bytes:
                told = [own]
                dist.broadcast_object_list(told, src=first, group=group)
                assert told[0] is not None
                return told[0]

            comm: Any = NcclCommunicator(
                ranks.index(rank), len(ranks), share, request.element.nccl, str(request.redop)
            )
        else:
            from wirecost.collectives.backends.gloo import GlooCommunicator

            assert isinstance(group, dist.ProcessGroup)
            comm = GlooCommunicator(group, ranks, str(request.redop))
        mine = (comm, number)
    return mine


class _TorchControl:
    """Implements `Control` over gloo."""

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier()

    def maximum(self, value: int) -> int:
        import torch
        import torch.distributed as dist

        shared = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return int(shared.item())

    def gather(self, value: Any) -> list[Any] | None:
        import torch.distributed as dist

        gathered: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(value, gathered, dst=0)
        return gathered


if __name__ == "__main__":
    main()
