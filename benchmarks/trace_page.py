"""Measures the size of the page of traces and the CPU time to make it.

The inputs are a job with many ranks, and the worst case: random events, so that nearly every cell holds several
categories.

usage: python benchmarks/trace_page.py [TRACES...]    (further folders of traces to measure)
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.simulated_jobs import AllReduce, Kernel, Synchronise, Wait, simulate
from wirecost.trace import read
from wirecost.trace.html import render_html

US = 1_000


def random_events(folder: Path, ranks: int, events: int) -> Path:
    """Returns overlapping kernels, copies and collectives of random length."""
    folder.mkdir()
    names = {
        "kernel": ["gemm", "softmax", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"],
        "gpu_memcpy": ["Memcpy DtoD"],
    }
    for rank in range(ranks):
        draw, at, lines = random.Random(rank), 10**9, []
        for _ in range(events):
            cat = draw.choice(["kernel", "kernel", "gpu_memcpy"])
            name = draw.choice(names[cat])
            at += draw.randrange(200, 90_000)
            stream = 20 if name.startswith("nccl") else 7
            lines.append(
                f'{{"ph":"X","cat":"{cat}","name":"{name}","pid":0,"tid":{stream},"ts":{at / 1000:.3f},'
                f'"dur":{draw.randrange(300, 90_000) / 1000:.3f},"args":{{}}}}'
            )
        head = f'{{"distributedInfo":{{"rank":{rank},"world_size":{ranks}}},"traceEvents":['
        (folder / f"rank{rank}.json").write_text(head + ",\n".join(lines) + "]}")
    return folder


def measure(label: str, folder: Path) -> None:
    traces = read(folder, timeline=True)
    events = sum(t.timeline.events.total for t in traces.traces if t.timeline is not None)
    start = time.process_time()
    page = render_html(traces)
    spent = time.process_time() - start
    size = len(page.encode())
    what = f"{label}: {len(traces.traces)} ranks, {events:,} device events"
    print(f"{what}: {size / 1e6:.1f} MB, {spent:.1f} s of CPU time")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        layer = [*[Kernel(lambda r, i: (30 + (7 * r + 3 * i) % 11) * US) for _ in range(100)], AllReduce(800 * US)]
        program = [*layer, *layer, Wait(), Kernel(500 * US, name="adam"), Synchronise()]
        measure("64 ranks", simulate(Path(scratch) / "many", program, ranks=64, iterations=10))
        measure("worst case", random_events(Path(scratch) / "random", 4, 150_000))
    for folder in sys.argv[1:]:
        measure(folder, Path(folder))


if __name__ == "__main__":
    main()
