"""Runs benchmarks in a separate process: `python -m wirecost.collectives.cell DIRECTORY... [-- WORKER...]`.

For each directory in turn the process builds the network, measures it (`link.json`), starts the ranks, watches
them and writes `ending.json`. It runs isolated (see `wirecost.launch.isolate`), so that nothing is left behind
however it ends. Ranks are forked from it, so that PyTorch is loaded once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from wirecost.collectives.request import Backend, BenchRequest
from wirecost.emulation.network import open_network
from wirecost.errors import WirecostError
from wirecost.launch.ranks import Ranks, count_lines
from wirecost.launch.result import JobResult, JobStatus
from wirecost.storage import run_to_exit_code, write_file


def run_cell(directory: Path, worker: Sequence[str]) -> JobResult:
    request = BenchRequest.model_validate_json((directory / "request.json").read_bytes())
    with ExitStack() as stack:
        try:
            running = stack.enter_context(open_network(request.network, request.hosts))
        except WirecostError as error:
            return JobResult(JobStatus.REFUSED, str(error))
        if running.link is not None:
            (directory / "link.json").write_text(running.link.model_dump_json())
        ranks = stack.enter_context(
            Ranks(
                [*worker, str(directory)] if worker else _forked_worker(directory),
                directory,
                request.ranks,
                per_host=request.ranks_per_host,
                network=request.network,
                hosts=running.hosts,
                nccl_log=request.backend is Backend.NCCL,
            )
        )
        result = ranks.watch(request.timeout_s, lambda rank: _steps(directory, rank), renew=True)
        if result.status is JobStatus.TIMED_OUT:
            reason = _why_late(directory, request, result.rank)
            return JobResult(JobStatus.TIMED_OUT, reason, result.rank, log_tail=result.log_tail)
        return result


def _forked_worker(directory: Path) -> Callable[[], int]:
    # Imported before the fork, so that each rank has it. The import must start no threads: forked ranks would lack
    # them.
    os.environ["OMP_NUM_THREADS"] = "1"
    from wirecost.collectives import session  # noqa: F401
    from wirecost.collectives.worker import run_here

    return partial(run_here, directory)


def _steps(directory: Path, rank: int) -> int:
    return count_lines(directory / "steps" / f"rank-{rank}")


def _why_late(directory: Path, request: BenchRequest, slowest: int | None) -> str:
    """Returns a text that names the ranks that didn't join, or the last step of the slowest rank.

    Args:
        slowest: the rank that the others wait for; None if it is unknown.
    """
    steps = [_steps(directory, rank) for rank in range(request.ranks)]
    missing = [str(rank) for rank, done in enumerate(steps) if not done]
    within = f"within {request.timeout_s:g} s"
    if missing:
        return f"rank {', '.join(missing)} of {request.ranks} did not start {within}"
    who = f"rank {slowest} of {request.ranks}" if slowest is not None else f"all {request.ranks} ranks"
    rank = steps.index(min(steps)) if slowest is None else slowest
    last = (directory / "steps" / f"rank-{rank}").read_text().splitlines()[-1]
    if last == "came":
        return f"{who} came but did not join its group {within}"
    return f"{who} stood still {within}, last after: {last}; raise --timeout if it only is slow"


def main(argv: Sequence[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)

    def run_cells() -> None:
        for name in argv[:at]:
            directory = Path(name)
            write_file(directory / "ending.json", json.dumps(vars(run_cell(directory, argv[at + 1 :]))))

    return run_to_exit_code(run_cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
