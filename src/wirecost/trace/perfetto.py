"""Writes the traces with breakdown, waits and causes as further tracks, in Chrome's JSON trace format.

ui.perfetto.dev opens the file. The format is described in
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format) and
https://perfetto.dev/docs/faq#json.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from wirecost._version import __version__
from wirecost.trace.originals import Rows, originals
from wirecost.trace.outputs import refuse_input
from wirecost.trace.page_data import nothing_to_draw
from wirecost.trace.source import TraceError
from wirecost.trace.tracks import tracks

if TYPE_CHECKING:
    from wirecost.trace.result import TraceSet

_encode = msgspec.json.Encoder().encode


def write_perfetto(traces: TraceSet, path: Path) -> int:
    """Writes the original events of all files on one clock, and wirecost's tracks above those of each rank.

    `traces` must have been read with `timeline=True`. The file is compressed if its name ends in `.gz`. Returns
    the number of events written.

    Raises:
        TraceError: if there is nothing to draw, the file can't be written, or it is one of the traces.
    """
    drawn = [t for t in traces.traces if t.timeline is not None]
    if not drawn:
        raise TraceError(nothing_to_draw(traces))
    refuse_input(traces, path)
    # A device, a pipe or a link is written into, and not replaced by a file.
    direct = path.is_symlink() or (path.exists() and not path.is_file())
    partial = path.with_name(path.name + ".partial")
    try:
        with _opened(path if direct else partial, compressed=path.name.endswith(".gz")) as out:
            count = _write(traces, out)
        if not direct:
            partial.replace(path)
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from error
    finally:
        if not direct:
            with contextlib.suppress(OSError):
                partial.unlink()
    return count


@contextlib.contextmanager
def _opened(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        with path.open("wb") as out:
            yield out
        return
    from isal import igzip

    with igzip.open(path, "wb", compresslevel=2) as out:
        yield out  # pyright: ignore[reportReturnType]


def _write(traces: TraceSet, out: IO[bytes]) -> int:
    rows, count = Rows(), 0
    out.write(b'{"displayTimeUnit":"ms","otherData":')
    out.write(_encode({"made by": f"wirecost {__version__}", "answer": dict(traces.answer.lines)}))
    out.write(b',"traceEvents":[\n')
    for event in itertools.chain(tracks(traces, rows), originals(traces, rows)):
        out.write((b"," if count else b"") + _line(event))
        count += 1
    for event in rows.metadata():
        out.write((b"," if count else b"") + _line(event))
        count += 1
    out.write(b"]}\n")
    return count


def _line(event: dict[str, Any]) -> bytes:
    return _encode(event) + b"\n"
