"""One rank of a benchmark: `python -m wirecost.collectives.worker DIRECTORY`.

It reads DIRECTORY's `request.json` and takes the rank from torchrun's environment variables. Rank 0 appends the
samples of every case to `samples.jsonl`. Every rank appends a line to `steps/rank-R` after each finished step.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import NoReturn

from wirecost.launch.rank import run_as_rank


def main() -> NoReturn:
    run_as_rank(Path(sys.argv[1]), run_rank)


def run_rank(directory: Path, rank: int) -> None:
    with (directory / "steps" / f"rank-{rank}").open("w", buffering=1) as steps:
        steps.write("came\n")

        from wirecost.collectives.driver import cases, measure
        from wirecost.collectives.request import Backend, BenchRequest
        from wirecost.collectives.session import session
        from wirecost.launch.rendezvous import meet

        request = BenchRequest.model_validate_json((directory / "request.json").read_bytes())
        # The launcher can name the missing ranks, so it must give up first. The GPUs of one machine are divided
        # among its ranks, whichever emulated host each rank belongs to.
        timeout_s = 3 * request.timeout_s
        store = None if request.backend is Backend.MPI else meet(datetime.timedelta(seconds=timeout_s), directory)
        with session(request, rank, rank, timeout_s, store) as setup:
            steps.write("joined\n")
            with (directory / "samples.jsonl").open("a", buffering=1) as out:
                for case in cases(request):
                    gathered = measure(setup, case)
                    if gathered is not None:
                        out.write(json.dumps({"case": vars(case), "ranks": gathered}) + "\n")
                    steps.write(f"{case}\n")


def run_here(directory: Path) -> NoReturn:
    """Runs the rank of this process as `main` does, in a process that was forked."""
    run_as_rank(directory, run_rank)


if __name__ == "__main__":
    main()
