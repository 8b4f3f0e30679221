"""Commands that are ended by a signal at some moment, and what is left of them."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

MARKER = "WIRECOST_TEST_MARKER"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
LONGEST_S = 60.0
"""How long is waited for what is left to go, on a machine however busy."""

STUDY = """\
name: killed
workloads:
  - {{name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}}
networks: [{network}]
plans: [all-reduce]
hosts: [{hosts}]
ranks_per_host: {ranks}
scaling: [{{kind: strong, global_batch: 4}}]
iterations: 100000
warmup: 1
benchmark: {benchmark}
"""
EMULATED = "{name: capped, emulate: {rate: 50 Mb/s}}"
KINDS = {
    "study, native": ("loopback", 1, 2, "false"),
    "study, emulated": (EMULATED, 2, 1, "false"),
    "study with benchmark, native": ("loopback", 1, 2, "true"),
    "study with benchmark, emulated": (EMULATED, 2, 1, "true"),
    "bench, native": ("bench", "--backend", "gloo", "--ranks-per-host", "2"),
    "bench, emulated": ("bench", "--backend", "gloo", "--hosts", "2", "--network", "emulated-100m"),
}


@dataclass
class Killed:
    """One command that was ended, and what was seen of it afterwards."""

    kind: str
    signal: signal.Signals
    after_s: float
    code: int
    stderr: str
    gone_after_s: float
    left: list[str] = field(default_factory=list)


def command(kind: str, folder: Path) -> list[str]:
    program = [sys.executable, "-m", "wirecost"]
    first, *rest = KINDS[kind]
    if first == "bench":
        return [*program, "bench", "all_reduce", "-b", "8", "-e", "64M", "-f", "2", *map(str, rest)]
    hosts, ranks, benchmark = rest
    path = folder / "study.yaml"
    path.write_text(STUDY.format(network=first, hosts=hosts, ranks=ranks, benchmark=benchmark))
    return [*program, "study", "run", str(path), "--out", str(folder / "out")]


def processes_with(marker: str) -> list[str]:
    """Returns the command lines of running processes that were started with a marker in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if marker.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(f"{entry}: {line}")
            except OSError:
                continue
    return found


def end_at(kind: str, number: signal.Signals, after_s: float, folder: Path) -> Killed:
    """Starts a command, sends it a signal after a time, and looks until nothing is left of it."""
    marker, temporary = secrets.token_hex(8), folder / "tmp"
    temporary.mkdir(parents=True)
    run = subprocess.Popen(
        command(kind, folder),
        env={**os.environ, MARKER: marker, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(after_s)
    run.send_signal(number)
    try:
        _, stderr = run.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        run.kill()
        _, stderr = run.communicate()
        stderr += "\n(did not end)"
    ended = time.monotonic()
    while left := [*processes_with(marker), *map(str, temporary.glob("wirecost*"))]:
        if time.monotonic() - ended > LONGEST_S:
            break
        time.sleep(0.1)
    gone_s = time.monotonic() - ended
    return Killed(kind, number, after_s, run.returncode, stderr, gone_s, left)


def end_many(count: int, folder: Path, *, seed: int, at_once: int, first_s: float = 10.0) -> Iterator[Killed]:
    """Ends `count` commands, all kinds by all signals, each at a random moment of its first `first_s` seconds."""
    random_ = random.Random(seed)
    pairs = [(kind, number) for number in SIGNALS for kind in KINDS]
    random_.shuffle(pairs)
    moments = [random_.uniform(0.0, first_s) for _ in range(count)]
    with ThreadPoolExecutor(at_once) as pool:
        started = [
            pool.submit(end_at, *pairs[n % len(pairs)], moment, folder / str(n))
            for n, moment in enumerate(moments)
        ]
        for future in started:
            yield future.result()
