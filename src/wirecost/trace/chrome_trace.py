"""Writes events in Chrome's JSON trace format, which ui.perfetto.dev opens.

The format is described in https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace
Event Format) and https://perfetto.dev/docs/faq#json.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from wirecost._version import __version__
from wirecost.trace.source import TraceError

_encode = msgspec.json.Encoder().encode


def write_events(path: Path, events: Iterable[Mapping[str, Any]], **about: Any) -> int:
    """Writes a trace, and returns the number of its events. The file is compressed if its name ends in `.gz`.

    Args:
        about: what is written about the whole trace, besides the version of wirecost.

    Raises:
        TraceError: if the file can't be written.
    """
    # A device, a pipe or a link is written into, and not replaced by a file.
    direct = path.is_symlink() or (path.exists() and not path.is_file())
    partial = path.with_name(path.name + ".partial")
    try:
        with _opened(path if direct else partial, compressed=path.name.endswith(".gz")) as out:
            count = _write(events, about, out)
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


def _write(events: Iterable[Mapping[str, Any]], about: Mapping[str, Any], out: IO[bytes]) -> int:
    count = 0
    out.write(b'{"displayTimeUnit":"ms","otherData":')
    out.write(_encode({"made by": f"wirecost {__version__}", **about}))
    out.write(b',"traceEvents":[\n')
    for event in events:
        out.write((b"," if count else b"") + _encode(event) + b"\n")
        count += 1
    out.write(b"]}\n")
    return count
