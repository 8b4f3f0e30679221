"""Measures how many MB of log `wirecost transport` reads per second of CPU time.

    python benchmarks/transport_speed.py [--megabytes 200] [--mix nccl mixed sparse]

Generates a log of the given size for each mix, reads it in a fresh process, and prints MB/s (1 MB = 10^6 bytes)
of CPU time (user and system) and the peak resident set. A loaded machine gives the same CPU time. Target: 100 MB/s
for each mix. `benchmarks/transport.py` prints wall time and the time of `grep`, for other mixes.

mixes:
  nccl     only NCCL's lines: set-up of a job of 512 ranks, connection after connection
  mixed    NCCL's lines and training lines in turn, as from ranks that start at different times
  every-10 one NCCL line after nine training lines
  sparse   one NCCL line after 999 training lines: an occasional warning
  short    NCCL's lines and training lines of 30 to 60 bytes in turn
  ranks    the lines of 8 ranks in turn, each of them NCCL's or a short training line
  prefixed the lines of `ranks` behind srun's label and a time stamp
  words    NCCL's lines between training lines with words that NCCL also uses ("via", "->", "NCCL", "GPU")
  calls    NCCL_DEBUG_SUBSYS=COLL between training lines: a line for each collective
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from transport import GPUS, HOSTS, calls, connections, training


def joined(lines: Iterator[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def turns(nccl: Iterator[str], every: int, others: Sequence[str] = ()) -> Iterator[str]:
    """Returns one line of `nccl` after every `every` - 1 lines of `others` (by default long training lines)."""
    lines = itertools.cycle(others or list(training()))
    for line in nccl:
        yield line
        yield from itertools.islice(lines, every - 1)


def words() -> Iterator[str]:
    for number, line in enumerate(training()):
        yield line
        yield f"rank {number % 8}: Using FusedAdam via apex; checkpoint to NET storage via mount {number % 17}"
        yield f"[rank{number % 8}]: step {number}, backend NCCL, loss {number / 7:.3f}"
        yield f"GPU {number % 8} memory allocated {number / 7:.3f} GiB; lr {number} -> {number + 1} via cosine"


def short() -> Iterator[str]:
    for step in range(50_000):
        yield f"step {step} loss {2 + 1 / (step + 1):.4f}"
        yield f"[rank{step % 8}]: step {step} lr 0.0003 grad_norm {step % 97 / 50:.3f}"


def ranks(comm: int) -> Iterator[str]:
    """Returns the lines of a host's 8 ranks in turn, with a training line after each round."""
    lines = list(connections(comm))
    per_rank = len(lines) // (GPUS * HOSTS)
    steps = itertools.cycle(list(short()))
    for host in range(HOSTS):
        of = [lines[(host * GPUS + gpu) * per_rank :][:per_rank] for gpu in range(GPUS)]
        for together in zip(*of, strict=True):
            for line in together:
                yield line
                yield next(steps)


def prefixed(comm: int) -> Iterator[str]:
    for number, line in enumerate(ranks(comm)):
        yield f"{number // 2 % GPUS}: 2025-03-04T05:06:{number % 60:02d}.{number % 1000:03d}Z {line}"


MIXES = {
    "nccl": connections,
    "mixed": lambda comm: turns(connections(comm), 2),
    "every-10": lambda comm: turns(connections(comm), 10),
    "sparse": lambda comm: turns(itertools.islice(connections(comm), 200), 1000),
    "short": lambda comm: turns(connections(comm), 2, list(short())),
    "ranks": ranks,
    "prefixed": prefixed,
    "words": lambda comm: turns(connections(comm), 5, list(words())),
    "calls": lambda comm: turns(calls(), 2),
}


def generate(path: Path, mix: str, size: int) -> None:
    blocks = [joined(MIXES[mix](comm)) for comm in range(2)]
    written = 0
    with path.open("wb") as file:
        for block in itertools.cycle(blocks):
            written += file.write(block)
            if written >= size:
                return


def read(path: str) -> None:
    """Reads the log and prints its speed. It runs in a fresh process."""
    from wirecost.ncclog import read_logs

    start = time.process_time()
    verdict = read_logs([path])
    cpu = time.process_time() - start
    # Not getrusage's, which a process inherits from the one that started it.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    print(json.dumps({"cpu": cpu, "peak": peak, "verdict": verdict.verdict, "lines": verdict.lines}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--mix", nargs="+", default=list(MIXES), choices=list(MIXES))
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    print(f"{'mix':<10} {'MB':>6} {'lines':>10} {'cpu s':>7} {'MB/cpu s':>9} {'peak MiB':>9}  verdict")
    with tempfile.TemporaryDirectory() as folder:
        for mix in options.mix:
            path = Path(folder) / "nccl.log"
            generate(path, mix, options.megabytes * 1_000_000)
            megabytes = path.stat().st_size / 1e6
            command = [sys.executable, __file__, "--read", str(path)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"{mix:<10} {megabytes:>6.0f} {answer['lines']:>10} {answer['cpu']:>7.2f} "
                f"{megabytes / answer['cpu']:>9.0f} {answer['peak'] / 2**20:>9.0f}  {answer['verdict']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
