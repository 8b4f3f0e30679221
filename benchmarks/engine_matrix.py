"""Trains every pair of settings (model, strategy, precision, compilation) on the GPUs that are here.

    PYTHONPATH=src python benchmarks/engine_matrix.py --out results/today                  # on GPUs
    PYTHONPATH=src python benchmarks/engine_matrix.py --only 2 --seconds 280 --out results/today
    PYTHONPATH=src python benchmarks/engine_matrix.py --device cpu --ranks 2 --limit 4     # does it run?

The cases are those of tests/support/matrix.py for 1, 2 and 4 ranks: few cases that contain every possible pair
of settings, each for a few steps. Cases that need more GPUs than there are count as skipped. Each case is
compared with one process that computes the same on the same device. A failure ends the processes of its number
of ranks; they start again after the case that failed. The table is printed and written to OUT/engine-matrix.csv
with the date and the card, also after each failure. Exit code 1 if a case failed or differs.

`--only N` trains the cases of N ranks, and of one rank only what these are compared with. If there are fewer GPUs,
ranks share them over NCCL's sockets (shared_gpus.py), and the table says so. Cases of a Llama under
ZeRO-3 in BF16 come first. `--resume` goes on with the table in OUT: it trains the cases that were not run or
failed, and what they are compared with.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.matrix import TINY, experiment_of, factors, loss_tolerance, matrix, reference_of
from support.pairwise import Case
from wirecost.launch.ports import free_port
from wirecost.launch.processes import die_with_parent
from wirecost.spec import Device
from wirecost.train.graphs import EAGER_ITERATIONS

RANKS = (1, 2, 4)
DIMENSIONS = {
    Device.CPU: TINY,
    Device.CUDA: {"hidden": 256, "heads": 4, "vocab_size": 4090, "sequence_length": 128},
}
COLUMNS = ["ranks", *factors(1), "status", "last_loss", "loss_difference", "seconds", "reason"]


@dataclasses.dataclass
class Row:
    """The result of a case.

    Attributes:
        status: trained, differs (from one process), failed, refused, skipped or not run.
        card: what it was trained on, if that was in an earlier run.
    """

    ranks: int
    case: Case
    status: str = dataclasses.field(default="not run", compare=False)
    reason: str = dataclasses.field(default="", compare=False)
    losses: list[float] | None = dataclasses.field(default=None, compare=False)
    difference: float | None = dataclasses.field(default=None, compare=False)
    seconds: float | None = dataclasses.field(default=None, compare=False)
    date: str = dataclasses.field(
        default_factory=lambda: str(datetime.datetime.now(datetime.UTC).date()), compare=False
    )
    card: str = dataclasses.field(default="", compare=False)

    def as_cells(self) -> dict[str, Any]:
        """Returns the row of the table, by column."""
        return {
            "ranks": self.ranks,
            **self.case,
            "status": self.status,
            "last_loss": "" if self.losses is None else f"{self.losses[-1]:.6f}",
            "loss_difference": "" if self.difference is None else f"{self.difference:.1e}",
            "seconds": "" if self.seconds is None else f"{self.seconds:.1f}",
            "reason": self.reason,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CUDA)
    parser.add_argument("--ranks", type=int, help="most ranks  [default: the number of GPUs]")
    parser.add_argument("--only", type=int, choices=RANKS[1:], help="only the cases of so many ranks")
    parser.add_argument("--resume", action="store_true", help="only what the table in OUT has not trained")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--limit", type=int, help="only so many cases for each number of ranks")
    parser.add_argument("--compiler", default="inductor", help="the backend of torch.compile")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one case")
    parser.add_argument("--seconds", type=float, default=1e9, help="seconds for everything; the rest isn't run")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)  # the folder of a rank's cases
    options = parser.parse_args()
    if options.work is not None:
        run_cases(options.work)
        return 0
    deadline = time.monotonic() + options.seconds
    card, gpus = describe(options.device)
    if options.only and options.device is Device.CUDA and options.only > gpus:
        card += f", {options.only} ranks on {gpus} GPU"
    most = options.only or options.ranks or gpus
    chosen = (options.only,) if options.only else RANKS
    covers = {ranks: matrix(ranks, DIMENSIONS[options.device], options.device) for ranks in chosen}
    before = trained_before(options.out) if options.resume else []
    cases_of = {
        ranks: [c for c in sorted(cover.cases, key=is_later)[: options.limit] if Row(ranks, c) not in before]
        for ranks, cover in covers.items()
    }
    # What the cases of more ranks are compared with is trained first, on one rank.
    references = unique([reference_of(c) for ranks in chosen if ranks <= most for c in cases_of[ranks]])
    rows: list[Row] = []
    for ranks in sorted({1, *chosen}):
        cases = (references if ranks == 1 else []) + cases_of.get(ranks, [])
        group = [Row(ranks, case) for case in unique(cases)]
        if ranks > most:
            for row in group:
                row.status, row.reason = "skipped", f"needs {ranks} GPUs; {most} are here"
        else:
            train(group, ranks, options, deadline, partial(keep, before, rows + group, options.out, card))
        rows += group
        refused = covers[ranks].refused if ranks in covers else {}
        for (first, second), reason in refused.items():
            rows.append(Row(ranks, dict([first, second]), "refused", reason))
    compare(rows)
    rows = merge(before, rows)
    save(rows, options.out, card)
    show(rows, card)
    return 1 if {"failed", "differs"} & {row.status for row in rows} else 0


def unique(cases: Sequence[Case]) -> list[Case]:
    """Returns cases without repetitions, in their order."""
    return [dict(items) for items in dict.fromkeys(tuple(case.items()) for case in cases)]


def is_later(case: Case) -> bool:
    """Returns whether a case comes after the commonest job: a Llama under ZeRO-3 in BF16."""
    return (case["model"][:5], case["data_parallel"], case["precision"]) != ("llama", "zero3", "bf16")


def describe(device: Device) -> tuple[str, int]:
    """Returns the name of the card and the number of cards. It asks another process, which then ends."""
    if device is Device.CPU:
        return "CPU", os.cpu_count() or 1
    ask = (
        "import torch; n = torch.cuda.device_count(); print(n); print(torch.cuda.get_device_name(0) if n else '')"
    )
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    count, name, *_ = [*answer.splitlines(), ""]
    if not int(count):
        sys.exit("engine_matrix: no GPU is here; use --device cpu")
    return name, int(count)


def train(
    rows: list[Row], ranks: int, options: argparse.Namespace, deadline: float, on_failure: Callable[[], None]
) -> None:
    """Trains the cases of one number of ranks. After a failure it goes on with the next case."""
    start = 0
    while start < len(rows) and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as folder:
            done, reason = launch(rows[start:], ranks, options, deadline, Path(folder))
        start += done
        if reason and start < len(rows):
            late = time.monotonic() >= deadline
            rows[start].status, rows[start].reason = "not run" if late else "failed", reason
            print(f"{ranks} ranks: {' '.join(rows[start].case.values())}: {reason}", flush=True)
            start += 1
            on_failure()
        elif not reason:
            return


def launch(
    rows: list[Row], ranks: int, options: argparse.Namespace, deadline: float, folder: Path
) -> tuple[int, str]:
    """Trains cases one after another in the same processes.

    Returns:
        The number of cases that are done, and why the next one failed, or an empty text.
    """
    experiments = []
    for row in rows:
        # The iterations before a capture are added to those of an experiment.
        iterations = options.iterations - (EAGER_ITERATIONS + 1 if row.case["graphs"] == "on" else 0)
        experiment = experiment_of(
            row.case, ranks, dimensions=DIMENSIONS[options.device], device=options.device, iterations=iterations
        )
        experiments.append(experiment.model_dump(mode="json"))
    (folder / "cases.json").write_text(json.dumps({"compiler": options.compiler, "experiments": experiments}))
    environment = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, __file__, "--device", options.device, "--work", str(folder)]
    processes = []
    for rank in range(ranks):
        with (folder / f"log-{rank}").open("w") as log:
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment | {"RANK": str(rank)},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509
                )
            )
    reason = watch(processes, folder, len(rows), options.timeout, deadline)
    for process in processes:
        process.kill()
        process.wait()
    done = finished(folder, ranks)
    for number in range(done):
        parts = [json.loads((folder / f"{number}-{rank}.json").read_text()) for rank in range(ranks)]
        known = [
            [loss for loss in losses if loss is not None]
            for losses in zip(*(p["losses"] for p in parts), strict=True)
        ]
        rows[number].losses = [sum(losses) / len(losses) for losses in known]
        rows[number].seconds = max(p["seconds"] for p in parts)
        rows[number].status = "trained"
    return done, reason


def finished(folder: Path, ranks: int) -> int:
    """Returns the number of cases, from the first on, that all ranks have done."""
    number = 0
    while all((folder / f"{number}-{rank}.json").exists() for rank in range(ranks)):
        number += 1
    return number


def watch(
    processes: list[subprocess.Popen[bytes]], folder: Path, cases: int, timeout: float, deadline: float
) -> str:
    """Waits until all cases are done, one fails, or time is up. Returns why the next case failed, or ''."""
    done, since = 0, time.monotonic()
    while True:
        time.sleep(0.2)
        codes = [process.poll() for process in processes]
        now = finished(folder, len(processes))
        if now > done:
            done, since = now, time.monotonic()
        if any(codes):
            time.sleep(2)  # the others write why they end
            return reason_of(
                folder, next(rank for rank, code in enumerate(codes) if code), max(filter(None, codes), key=abs)
            )
        if done == cases and not any(code is None for code in codes):
            return ""
        if time.monotonic() > deadline:
            return "the time for everything is up" if done < cases else ""
        if time.monotonic() - since > timeout:
            return f"no end after {timeout:.0f} s" if done < cases else ""


def reason_of(folder: Path, rank: int, code: int) -> str:
    """Returns the last line of a rank's error."""
    if (path := folder / f"error-{rank}").exists():
        return path.read_text()
    lines = [line for line in (folder / f"log-{rank}").read_text(errors="replace").splitlines() if line.strip()]
    return (lines[-1] if lines else f"rank {rank} ended with {code}")[:300]


def compare(rows: list[Row]) -> None:
    """Compares the losses of the trained cases with those of one process."""
    alone = {tuple(row.case.items()): row for row in rows if row.ranks == 1 and row.status == "trained"}
    for row in rows:
        if row.status != "trained" or row.losses is None:
            continue
        reference = alone.get(tuple(reference_of(row.case).items()))
        if reference is None or reference.losses is None:
            row.reason = "nothing to compare with"
            continue
        pairs = zip(row.losses, reference.losses, strict=True)
        row.difference = max(abs(loss - right) / abs(right) for loss, right in pairs)
        tolerance = loss_tolerance(row.case)
        if not row.difference <= tolerance:
            row.status, row.reason = "differs", f"losses differ by more than {tolerance:.1e}"


def trained_before(out: Path) -> list[Row]:
    """Returns the trained cases of the table in a folder, with the last of their losses."""
    rows = []
    with (out / "engine-matrix.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["status"] == "trained":
                case = {name: line[name] for name in factors(1) if line[name]}
                row = Row(
                    int(line["ranks"]), case, "trained", line["reason"], date=line["date"], card=line["card"]
                )
                row.losses = [float(line["last_loss"])]
                row.difference = float(line["loss_difference"]) if line["loss_difference"] else None
                row.seconds = float(line["seconds"])
                rows.append(row)
    return rows


def merge(before: list[Row], rows: list[Row]) -> list[Row]:
    """Returns the cases of an earlier table and of this run, by their number of ranks. A case that both have
    trained is the earlier one."""
    new = [row for row in rows if row not in before or row.status == "refused"]
    return sorted([*before, *new], key=lambda row: row.ranks)


def keep(before: list[Row], rows: list[Row], out: Path, card: str) -> None:
    """Writes what is known so far."""
    save(merge(before, rows), out, card)


def save(rows: list[Row], out: Path, card: str) -> None:
    """Writes the table as CSV."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "engine-matrix.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["date", "card", *COLUMNS], restval="")
        table.writeheader()
        for row in rows:
            table.writerow({"date": row.date, "card": row.card or card, **row.as_cells()})


def show(rows: list[Row], card: str) -> None:
    """Prints the table."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    shown = [{column: str(row.as_cells().get(column, "")) for column in COLUMNS} for row in rows]
    widths = {c: max(len(c), *(len(line[c]) for line in shown)) for c in COLUMNS[:-1]}
    for line in [{column: column for column in COLUMNS}, *shown]:
        print("  ".join([*(line[c].ljust(widths[c]) for c in widths), line["reason"]]).rstrip())
    counts = Counter(row.status for row in rows)
    print(f"{day}, {card}: " + ", ".join(f"{count} {status}" for status, count in counts.items()))


def run_cases(folder: Path) -> None:
    """Runs one rank of the cases in a folder."""
    import torch
    import torch.distributed as dist
    from shared_gpus import device_of

    from wirecost.spec import Experiment
    from wirecost.train.groups import communication_options
    from wirecost.train.loop import TrainedIteration
    from wirecost.train.loop import train as train_rank

    rank = int(os.environ["RANK"])
    request = json.loads((folder / "cases.json").read_text())
    experiments = [Experiment.model_validate(settings) for settings in request["experiments"]]
    torch.set_num_threads(1)
    if request["compiler"] != "inductor":
        torch.compiler.set_default_backend(request["compiler"])
    if experiments[0].device is Device.CUDA:
        device = device_of(rank, int(os.environ["WORLD_SIZE"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", rank=rank, device_id=device, pg_options=communication_options("nccl"))
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", rank=rank)
    # Some tokens are frequent, so there is something to learn.
    tokens = np.minimum(np.random.default_rng(0).geometric(0.05, 20_000) - 1, 127).astype(np.uint16)
    for number, experiment in enumerate(experiments):
        start = time.monotonic()
        try:
            torch._dynamo.reset()
            steps = [step for step in train_rank(experiment, tokens, device) if isinstance(step, TrainedIteration)]
        except BaseException as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            (folder / f"error-{rank}").write_text(f"{type(error).__name__}: {lines[0] if lines else ''}"[:300])
            raise
        done = {"losses": [step.loss for step in steps], "seconds": time.monotonic() - start}
        partial_file = folder / f".{number}-{rank}"
        partial_file.write_text(json.dumps(done))
        partial_file.rename(folder / f"{number}-{rank}.json")
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
