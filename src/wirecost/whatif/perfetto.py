"""The timeline of an iteration before and after a change, for ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.text import printable
from wirecost.trace.chrome_trace import write_events
from wirecost.trace.outputs import refuse_input
from wirecost.whatif.timeline import Piece, pieces

if TYPE_CHECKING:
    from wirecost.whatif.job import Job
    from wirecost.whatif.question import Question

_LONGEST_NAME = 200


def before_and_after(job: Job, question: Question | None) -> list[tuple[str, list[Piece]]]:
    """Returns (title, work) of the replayed iteration before and, if there is a question, after the change."""
    found = [("before", pieces(job.recorded, job.speeds(None)))]
    if question is not None:
        found.append(("after", pieces(job.scenario(question), job.speeds(question))))
    return found


def write_perfetto(job: Job, question: Question | None, path: Path) -> None:
    """Writes the timeline before and after; compressed if the name ends in `.gz`.

    Raises:
        TraceError: if the file can't be written, or is one of the traces.
    """
    refuse_input([record.trace.file for record in job.records], path)
    write_events(path, _events(before_and_after(job, question)))


def _events(timelines: list[tuple[str, list[Piece]]]) -> Iterator[dict[str, Any]]:
    threads: dict[tuple[int, str], int] = {}
    for number, (title, work) in enumerate(timelines):
        for piece in work:
            pid = 1 + 2 * piece.rank + number
            key = (pid, piece.lane)
            if key not in threads:
                threads[key] = 1000 + len(threads)
                yield _name("process_name", pid, 0, f"rank {piece.rank} {title} (replayed)")
                yield _name("thread_name", pid, threads[key], piece.lane)
            yield {
                "ph": "X", "cat": piece.kind, "name": printable(piece.name[:_LONGEST_NAME]), "pid": pid,
                "tid": threads[key], "ts": piece.start_ns / 1000, "dur": (piece.end_ns - piece.start_ns) / 1000,
            }  # fmt: skip


def _name(kind: str, pid: int, tid: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": text}}
