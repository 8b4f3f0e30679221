"""What-if questions: answers against measurements, stragglers against published ones, and the time of a large job.

    PYTHONPATH=src:tests python benchmarks/whatif.py [--shared DIR] [--ranks 8] [--layers 1000] [--steps 100]

Prints the CPU time of reading, of building the graph and of one answer, and the largest memory.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from support.ddp_traces import Job as Recorded
from support.ddp_traces import write_job
from wirecost.whatif.answer import answer_to
from wirecost.whatif.job import Job
from wirecost.whatif.question import Question
from wirecost.whatif.reading import read_ranks
from wirecost.whatif.stragglers import stragglers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    if options.shared is not None:
        for path in sorted((options.shared / "reference" / "stragglers").glob("trace-*.parquet")):
            begun = time.process_time()
            found = stragglers(path)
            print(f"{path.name}: slowdown {found.slowdown:.9f}, {time.process_time() - begun:.2f} s of CPU")
    with tempfile.TemporaryDirectory() as folder:
        job = Recorded(layers=options.layers, steps=options.steps, ranks=options.ranks)
        write_job(Path(folder), job)
        begun = time.process_time()
        records = read_ranks([folder])
        read = time.process_time()
        events = sum(record.trace.events for record in records)
        graph = Job(records, step_time_ns=None)
        built = time.process_time()
        answer = answer_to(graph, Question(bandwidth_bps=1e11))
        answered = time.process_time()
    print(
        f"{events:,} events of {options.ranks} ranks: reading {read - begun:.1f} s, graph {built - read:.1f} s, "
        f"answer {answered - built:.1f} s of CPU, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB; "
        f"{answer.low_ms:.1f} to {answer.high_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
