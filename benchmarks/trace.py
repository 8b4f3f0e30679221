"""Compares trace reading with HolisticTraceAnalysis: speed per core, peak memory and growth with the size.

usage: python benchmarks/trace.py [--trace FILE] [--mib 300] [--ranks 8] [--sizes 75 150 300 600] [--only PART ...]

Repeats a real PyTorch profiler trace, shifted in time and with its steps renumbered, up to the given size. Then
runs `wirecost trace` and HolisticTraceAnalysis (from PyPI, in a temporary virtual environment) on the same files
in separate processes. Peak memory is that of the largest process. Parts: one, ranks, sizes, gzip.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
HTA = "HolisticTraceAnalysis"
_REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "ddp-2-ranks-nccl-args.json.gz"
_HTA_CODE = """
import sys
from hta.trace_analysis import TraceAnalysis
files = {rank: path for rank, path in enumerate(sys.argv[1:])}
analysis = TraceAnalysis(trace_files=files, trace_dir="")
print(analysis.get_temporal_breakdown(visualize=False))
print(analysis.get_comm_comp_overlap(visualize=False))
"""

# The least that a reader has to do: the events of a file, slice by slice, into structs of the fields needed.
_DECODING = """
import gc, sys, time, msgspec
class Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: msgspec.Raw = msgspec.Raw()
    pid: msgspec.Raw = msgspec.Raw()
    tid: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()
decode = msgspec.json.Decoder(list[Event]).decode
gc.disable()
def slices(file):
    left = file.read(1 << 17)
    left = left[left.index(b"[", left.index(b'"traceEvents"')) + 1 :]
    while data := file.read(1 << 17):
        left += data
        end = left.rfind(b"}," + left[:1])
        if end > 0:
            yield b"[" + left[: end + 1] + b"]"
            left = left[end + 2 :]
started, size = time.process_time(), 0
with open(sys.argv[1], "rb") as file:
    for text in slices(file):
        try:
            size += len(text) * bool(decode(text))
        except msgspec.DecodeError:
            pass
spent = time.process_time() - started
print(f"decoding alone (msgspec)   {size / 2**20 / spent:8.1f} MiB/s by cpu, without starting Python")
"""
_READING = """
import sys, time
from pathlib import Path
from wirecost.trace.file import read_file
from wirecost.trace.rank import Options
started = time.process_time()
read_file(Path(sys.argv[1]), Options())
spent = time.process_time() - started
print(f"wirecost, one rank's answer{Path(sys.argv[1]).stat().st_size / 2**20 / spent:8.1f} MiB/s by cpu, the same")
"""


@dataclass
class Measured:
    wall_s: float
    cpu_s: float
    peak_bytes: int
    ok: bool


def stretched(source: bytes, path: Path, mib: float, rank: int = 0) -> int:
    """Writes `source` repeated to at least `mib` MiB, each copy later than the one before. Returns the size."""
    opening = re.search(rb'"traceEvents"\s*:\s*\[', source)
    closing = re.search(rb"\}\s*\](?=\s*(?:,\s*\"|\}))", source[opening.end() :]) if opening else None
    while closing is not None and opening is not None:
        # The list of events closes at the last bracket before the next top-level member.
        rest = source[opening.end() + closing.end() :]
        if re.match(rb'\s*(\}|,\s*"(INFO|traceName|displayTimeUnit|baseTimeNanoseconds)")', rest):
            break
        closing = re.compile(rb"\}\s*\](?=\s*(?:,\s*\"|\}))").search(source[opening.end() :], closing.end())
    if opening is None or closing is None:
        raise SystemExit("the trace isn't laid out as kineto writes it")
    start, end = opening.end(), opening.end() + closing.start() + 1
    body = source[start:end]
    head = re.sub(rb'("rank": )\d+', rb"\g<1>%d" % rank, source[:start], count=1)
    times = [int(t) for t in re.findall(rb'"ts": (\d+)', body)]
    steps = [int(n) for n in re.findall(rb"ProfilerStep#(\d+)", body)] or [0]
    shift, renumber = max(times) - min(times) + 1000, max(steps) - min(steps) + 1
    ids = 1 + max(map(int, re.findall(rb'"(?:correlation|External id|id)": (\d{1,18})\b', body)), default=0)
    copies = max(1, -int(-(mib * MIB - len(head)) // len(body)))
    with path.open("wb") as out:
        out.write(head)
        for copy in range(copies):
            text = _moved(body, copy * shift, copy * renumber, copy * ids) if copy else body
            out.write((b"," if copy else b"") + text)
        out.write(source[end:])
    return path.stat().st_size


def _moved(body: bytes, shift_us: int, renumber: int, ids: int) -> bytes:
    later = re.sub(rb'("ts": )(\d+)', lambda m: b"%s%d" % (m[1], int(m[2]) + shift_us), body)
    # Correlation and external ids join launches to kernels: a copy has its own.
    joined = rb'("(?:correlation|External id|id)": )(\d{1,18})\b'
    later = re.sub(joined, lambda m: b"%s%d" % (m[1], int(m[2]) + ids), later)
    return re.sub(rb"(ProfilerStep#)(\d+)", lambda m: b"%s%d" % (m[1], int(m[2]) + renumber), later)


def measure(command: list[str]) -> Measured:
    """Runs a command. Returns its wall time, its CPU time with its children's, and the largest peak of any one
    process.
    """
    peaks: dict[int, int] = {}
    done = threading.Event()
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def watch() -> None:
        while not done.wait(0.02):
            for pid in _tree(process.pid):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                high_water = re.search(r"VmHWM:\s+(\d+) kB", status)
                if high_water:
                    peaks[pid] = max(peaks.get(pid, 0), int(high_water[1]) * 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    watcher.join()
    if process.returncode:
        print(errors.decode(errors="replace")[-2000:], file=sys.stderr)
    # A child's ru_maxrss counts what its parent held when it was started.
    peak = max(peaks.values(), default=usage.ru_maxrss * 1024)
    return Measured(wall, usage.ru_utime + usage.ru_stime, peak, process.returncode == 0)


def _tree(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    pids = [root]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def ours(files: list[Path], jobs: int) -> Measured:
    return measure(
        [sys.executable, "-m", "wirecost", "trace", *map(str, files), "--format", "json", "--out", os.devnull,
         "--jobs", str(jobs)]
    )  # fmt: skip


def peer(folder: Path) -> Path | None:
    """Returns a Python with HolisticTraceAnalysis from PyPI; None if it can't be installed."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", HTA], check=False)
        if done.returncode:
            return None
    return python


def line(who: str, what: str, size: int, largest: int, m: Measured, cores: int) -> None:
    if not m.ok:
        print(f"{who:24} {what:26} failed", flush=True)
        return
    print(
        f"{who:24} {what:26} {m.wall_s:8.2f} s wall {m.cpu_s:8.2f} s cpu "
        f"{size / MIB / m.wall_s / cores:8.1f} MiB/s a core by wall {size / MIB / m.cpu_s:8.1f} by cpu "
        f"{m.peak_bytes / MIB:8.0f} MiB peak = {m.peak_bytes / largest:5.2f} x file",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=_REFERENCE)
    parser.add_argument("--mib", type=float, default=300)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--peer-ranks", type=int, help="how many ranks the peer gets (default: as many)")
    parser.add_argument("--sizes", type=float, nargs="*", default=[75, 150, 300, 600])
    parser.add_argument("--only", nargs="*", default=["one", "gzip", "ranks", "sizes"])
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--folder", type=Path, help="keep files and the peer's environment there")
    options = parser.parse_args()
    source = options.trace.read_bytes()
    source = gzip.decompress(source) if source.startswith(b"\x1f\x8b") else source
    folder = options.folder or Path(tempfile.mkdtemp(prefix="wirecost-benchmark-"))
    folder.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}; trace {options.trace.name}")
    try:
        python = None if options.no_peer else peer(folder)
        if python is not None:
            version = subprocess.run(
                [str(python), "-m", "pip", "show", HTA], capture_output=True, text=True, check=False
            ).stdout
            print(f"{HTA} {''.join(re.findall(r'^Version: (.*)$', version, re.MULTILINE))}", flush=True)
        if {"one", "gzip"} & set(options.only):
            file = folder / "rank0.json"
            size = stretched(source, file, options.mib)
            if "one" in options.only:
                line("wirecost", f"1 file, {size / MIB:.0f} MiB", size, size, ours([file], 1), 1)
                for code in (_READING, _DECODING) * 3:
                    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
                if python is not None:
                    line(HTA, "the same", size, size, measure([str(python), "-c", _HTA_CODE, str(file)]), 1)
            if "gzip" in options.only:
                packed = folder / "packed_rank0.json.gz"
                with file.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as out:
                    shutil.copyfileobj(plain, out, MIB)
                line("wirecost", "the same, gzip", size, size, ours([packed], 1), 1)
                packed.unlink()
            file.unlink()
        if "ranks" in options.only:
            files = [folder / f"rank{r}.json" for r in range(options.ranks)]
            sizes = [stretched(source, f, options.mib, r) for r, f in enumerate(files)]
            busy = min(cores, len(files))
            label = f"{len(files)} ranks of {sizes[0] / MIB:.0f} MiB"
            line("wirecost", label, sum(sizes), max(sizes), ours(files, cores), busy)
            some = files[: options.peer_ranks or len(files)]
            if python is not None:
                m = measure([str(python), "-c", _HTA_CODE, *map(str, some)])
                line(HTA, f"{len(some)} of them", sum(sizes[: len(some)]), max(sizes), m, min(cores, len(some)))
            for file in files:
                file.unlink()
        if "sizes" in options.only:
            for mib in options.sizes:
                file = folder / "rank0.json"
                size = stretched(source, file, mib)
                line("wirecost", f"1 file, {size / MIB:.0f} MiB", size, size, ours([file], 1), 1)
                for code in (_READING, _DECODING) * 3:
                    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
                file.unlink()
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
