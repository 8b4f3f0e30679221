"""Measures the speed and memory of `wirecost transport` on a large log.

    python benchmarks/transport.py [--megabytes 1000] [--mix job connections calls]

Generates a log of the wanted size for each mix, reads it in a fresh process and prints MB/s (1 MB = 10^6 bytes) by
wall clock and by processor time, the peak resident set and, beside it, what `grep -c` takes for one word of the
same file. Target: 100 MB/s, and memory that doesn't grow with the log.

mixes: `job` is a job of 512 ranks at NCCL_DEBUG=INFO (set-up of 4 communicators a rank, then training output);
`connections` is nothing but connection lines; `calls` is NCCL_DEBUG_SUBSYS=COLL, one line for each collective.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

GPUS = 8
HOSTS = 64


def connections(comm: int) -> Iterator[str]:
    """Returns set-up lines of one communicator over all ranks, as its ranks print them in turn."""
    ranks = GPUS * HOSTS
    for rank in range(ranks):
        host, gpu = f"node{rank // GPUS:03d}", rank % GPUS
        who = f"{host}:{4000 + gpu}:{5000 + gpu} [{gpu}] NCCL INFO "
        base = f"ncclCommInitRank comm 0x5{comm:03x}{rank:04x}0 rank {rank} nranks {ranks} cudaDev {gpu} "
        tail = f"nvmlDev {gpu} busId {gpu + 1}1000 commId 0xabc{comm:04x}"
        yield f"{who}{base}{tail} - Init START"
        host_number, last = rank // GPUS, GPUS - 1
        # Rings, then the double binary tree over hosts (parent and two children), over 16 channels.
        peers = [rank + 1] if gpu < last else [(rank + 1) % ranks]
        peers += [rank - 1] if gpu > 0 else []
        if gpu == 0:
            peers += [p * GPUS for p in ((host_number - 1) // 2, 2 * host_number + 1, 2 * host_number + 2)]
        for peer in peers:
            for channel in range(16):
                index, pair = f"Channel {channel:02d}/0 : ", f"{rank}[{gpu}] -> {peer}[{peer % GPUS}]"
                if peer // GPUS == host_number:
                    yield f"{who}{index}{pair} via P2P/CUMEM"
                    continue
                back = f"{peer}[{peer % GPUS}] -> {rank}[{gpu}]"
                yield f"{who}{index}{back} [receive] via NET/IB/{gpu}/GDRDMA"
                yield f"{who}{index}{pair} [send] via NET/IB/{gpu}/GDRDMA"
        yield f"{who}{base}{tail} - Init COMPLETE"


def training() -> Iterator[str]:
    for step in range(20_000):
        yield (
            f" [2025-03-04 05:06:07] iteration {step:8d}/ 500000 | consumed samples: {step * 512:12d} "
            f"| elapsed time "
            "per iteration (ms): 1234.5 | learning rate: 3.000E-04 | lm loss: 2.345678E+00 | grad norm: 0.321 |"
        )


def calls() -> Iterator[str]:
    for op in range(20_000):
        gpu = op % GPUS
        yield (
            f"node001:{4000 + gpu}:{4000 + gpu} [{gpu}] NCCL INFO AllReduce: opCount {op:x} sendbuff "
            f"0x7f4{op:09x} "
            f"recvbuff 0x7f4{op:09x} count 26214400 datatype 9 op 0 root 0 comm 0x50000010 "
            f"[nranks=512] stream 0x5581"
        )


def blocks(mix: str) -> Iterator[bytes]:
    def joined(lines: Iterator[str]) -> bytes:
        return ("\n".join(lines) + "\n").encode()

    if mix == "connections":
        for comm in range(10**9):
            yield joined(connections(comm % 4))
    if mix == "job":
        for comm in range(4):
            yield joined(connections(comm))
        text = joined(training())
        while True:
            yield text
    first, text = joined(connections(0)), joined(calls())
    yield first
    while True:
        yield text


def generate(path: Path, mix: str, size: int) -> None:
    written = 0
    with path.open("wb") as file:
        for block in blocks(mix):
            written += file.write(block)
            if written >= size:
                return


def read(path: str) -> None:
    """Reads the log and prints time and memory. It runs in a fresh process."""
    from wirecost.ncclog import read_logs

    start, start_cpu = time.perf_counter(), time.process_time()
    verdict = read_logs([path])
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {"seconds": seconds, "cpu": cpu, "peak": peak, "verdict": verdict.verdict, "lines": verdict.lines}
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--mix", nargs="+", default=["job", "connections", "calls"])
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    titles = f"{'mix':<12} {'MB':>6} {'lines':>10} {'s':>7} {'MB/s':>6} {'MB/cpu s':>9} {'peak MiB':>9}"
    print(f"{titles} {'grep MB/s':>10}  verdict")
    with tempfile.TemporaryDirectory() as folder:
        for mix in options.mix:
            path = Path(folder) / "nccl.log"
            generate(path, mix, options.megabytes * 1_000_000)
            megabytes = path.stat().st_size / 1e6
            command = [sys.executable, __file__, "--read", str(path)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            start = time.perf_counter()
            subprocess.run(["grep", "-c", "GDRDMA", str(path)], check=False, capture_output=True)
            grep = time.perf_counter() - start
            print(
                f"{mix:<12} {megabytes:>6.0f} {answer['lines']:>10} {answer['seconds']:>7.2f} "
                f"{megabytes / answer['seconds']:>6.0f} {megabytes / answer['cpu']:>9.0f} "
                f"{answer['peak'] / 2**20:>9.0f} {megabytes / grep:>10.0f}  "
                f"{answer['verdict']}"
            )


if __name__ == "__main__":
    main()
