"""The timeline of an iteration before and after a change, for ui.perfetto.dev (Chrome's JSON trace format)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from wirecost._version import __version__
from wirecost.errors import WirecostError
from wirecost.text import printable
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


def refuse_input(job: Job, path: Path) -> None:
    """Raises WirecostError if `path` is one of the traces."""
    for record in job.records:
        if path.exists() and Path(record.trace.file).exists() and path.samefile(record.trace.file):
            raise WirecostError(f"{path}: is one of the traces; name another file to write")


def write_perfetto(job: Job, question: Question | None, path: Path) -> None:
    """Writes the timeline before and after; compressed if the name ends in `.gz`.

    Raises:
        WirecostError: if the file can't be written, or is one of the traces.
    """
    refuse_input(job, path)
    partial = path.with_name(path.name + ".partial")
    try:
        with _opened(partial, compressed=path.name.endswith(".gz")) as out:
            _write(before_and_after(job, question), out)
        partial.replace(path)
    except OSError as error:
        raise WirecostError(f"{path}: can't be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def _opened(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        with path.open("wb") as out:
            yield out
        return
    from isal import igzip

    with igzip.open(path, "wb", compresslevel=2) as out:
        yield out  # pyright: ignore[reportReturnType]


def _write(timelines: list[tuple[str, list[Piece]]], out: IO[bytes]) -> None:
    encode = msgspec.json.Encoder().encode
    out.write(b'{"displayTimeUnit":"ms","otherData":')
    out.write(encode({"made by": f"wirecost {__version__}"}))
    out.write(b',"traceEvents":[\n')
    first = True
    for event in _events(timelines):
        out.write((b"" if first else b",") + encode(event) + b"\n")
        first = False
    out.write(b"]}\n")


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
