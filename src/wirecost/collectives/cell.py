"""A benchmark in a process of its own: `python -m wirecost.collectives.cell DIRECTORY [WORKER...]`.

Builds the network, measures it (`link.json`), starts the ranks, watches them, writes `ending.json`. Runs
isolated (see `wirecost.fabric.isolate`), so that whatever kills it leaves nothing behind.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.errors import WirecostError
from wirecost.fabric.hosts import EmulatedHosts
from wirecost.fabric.launch import End, Ending, Ranks, count_lines
from wirecost.fabric.probe import measure_best

WORKER = (sys.executable, "-m", "wirecost.collectives.worker")


def run_cell(directory: Path, worker: Sequence[str]) -> Ending:
    request = BenchRequest.model_validate_json((directory / "request.json").read_bytes())
    with ExitStack() as stack:
        hosts = None
        if request.fabric.emulate is not None:
            try:
                hosts = stack.enter_context(EmulatedHosts(request.hosts, request.fabric.emulate))
            except WirecostError as error:
                return Ending(End.REFUSED, str(error))
            if request.hosts > 1:
                (directory / "link.json").write_text(measure_best(hosts).model_dump_json())
        on_gpu = request.backend is Backend.NCCL
        ranks = stack.enter_context(
            Ranks(
                [*worker, str(directory)],
                directory,
                request.ranks,
                per_host=request.ranks_per_host,
                fabric=request.fabric,
                hosts=hosts,
                nccl_log=on_gpu,
            )
        )
        ending = ranks.watch(request.timeout_s, lambda rank: _steps(directory, rank), renew=True)
        if ending.end is End.LATE and ending.rank is not None:
            return Ending(End.LATE, _why_late(directory, request), ending.rank, log_tail=ending.log_tail)
        return ending


def _steps(directory: Path, rank: int) -> int:
    return count_lines(directory / "steps" / f"rank-{rank}")


def _why_late(directory: Path, request: BenchRequest) -> str:
    """Names the ranks that never came, or what the slowest did last."""
    steps = [_steps(directory, rank) for rank in range(request.ranks)]
    missing = [str(rank) for rank, done in enumerate(steps) if not done]
    within = f"within {request.timeout_s:g} s"
    if missing:
        return f"rank {', '.join(missing)} of {request.ranks} never came: not started {within}"
    slowest = steps.index(min(steps))
    last = (directory / "steps" / f"rank-{slowest}").read_text().splitlines()[-1]
    if last == "came":
        return f"rank {slowest} of {request.ranks} came but did not join its group {within}"
    return (
        f"rank {slowest} of {request.ranks} stood still {within}, last after: {last}; "
        "raise --timeout if it only is slow"
    )


def main(argv: Sequence[str]) -> int:
    directory = Path(argv[0])
    ending = run_cell(directory, argv[1:] or WORKER)
    partial = directory / ".ending.json"
    partial.write_text(json.dumps(vars(ending)))
    partial.rename(directory / "ending.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
