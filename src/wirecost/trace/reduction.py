"""Reductions: what `wirecost trace` keeps of a file, in a file of its own that is a hundredth of its size.

A job's traces lie on the machines of its ranks. Each is reduced where it lies, and the reductions are read
together as the traces would be, with the same result.

    wirecost reduced trace 2\\n    the format and its version
    (zstd) {options, traces}      MessagePack of the `RankTrace` of each device of the file
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zstandard
from pydantic import ValidationError

from wirecost.trace.calls import Calls
from wirecost.trace.causes import CODES
from wirecost.trace.rank import Options, RankTrace
from wirecost.trace.source import TraceError
from wirecost.trace.wire import decode_arrays, encode_arrays

SUFFIX = ".wtrace"
MAGIC = b"wirecost reduced trace 2\n"
LARGEST_BYTES = 1 << 30
"""Largest reduction that is read, before and after decompression."""
TIMELINE_SEGMENTS = 2_000
"""Cells and events that the time line of a reduced rank keeps."""


_DAMAGE = (zstandard.ZstdError, msgspec.MsgspecError, ValidationError)


class Reduction(msgspec.Struct):
    """The content of a reduction, and how the trace was read."""

    options: Options
    traces: list[RankTrace]


_encoder = msgspec.msgpack.Encoder(enc_hook=encode_arrays)
_decoder = msgspec.msgpack.Decoder(Reduction, dec_hook=decode_arrays)


def encode_reduction(options: Options, traces: list[RankTrace]) -> bytes:
    """Returns the content of the reduction of a file that was read with these options."""
    return MAGIC + zstandard.ZstdCompressor().compress(_encoder.encode(Reduction(options, traces)))


def is_reduction(head: bytes) -> bool:
    """Returns whether a file that begins with these bytes is a reduction of any version."""
    return head.startswith(MAGIC[: MAGIC.rindex(b" ")])


def read_reduction(path: Path, options: Options) -> list[RankTrace]:
    """Returns the traces of a reduction.

    Raises:
        TraceError: if it is damaged, of another version, or was made with other options.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TraceError(f"{path}: is larger than a reduction can be ({LARGEST_BYTES >> 30} GiB)")
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror}") from error
    if not content.startswith(MAGIC):
        raise TraceError(f"{path}: is a reduction of another version of wirecost; reduce the trace again")
    try:
        size = zstandard.frame_content_size(content[len(MAGIC) :])
        if not 0 <= size <= LARGEST_BYTES:
            raise ValueError("its size is impossible")
        reduction = _decoder.decode(zstandard.ZstdDecompressor().decompress(content[len(MAGIC) :]))
        for trace in reduction.traces:
            _check(trace)
    except (*_DAMAGE, ValueError, TypeError, OverflowError) as error:
        raise TraceError(f"{path}: is a damaged reduction ({' '.join(str(error).split())[:100]})") from error
    made = reduction.options
    if options.window not in ("auto", made.window):
        raise TraceError(f"{path}: was reduced with --window {made.window}; reduce the trace again for another")
    if options.comm_patterns and options.comm_patterns != made.comm_patterns:
        raise TraceError(f"{path}: was reduced with another --comm-pattern; reduce the trace again")
    if not reduction.traces:
        raise TraceError(f"{path}: holds no trace")
    return reduction.traces


def _check(trace: RankTrace) -> None:
    """Raises ValueError for a trace whose columns or indices don't fit together."""
    calls = trace.calls
    count = len(calls.start_ns)
    for name in Calls.__struct_fields__:
        value: Any = getattr(calls, name)
        if isinstance(value, np.ndarray) and value.shape != (count,):
            raise ValueError(f"the column {name} has another length")
    calls.exposed.intervals()  # raises an error if they are damaged
    for index, limit, least in (
        (calls.op, len(calls.ops), 0),
        (calls.group, len(calls.groups), 0),
        (calls.iteration, len(trace.iterations), -1),
        (calls.after, len(calls.kernels), -1),
        (calls.before, len(calls.kernels), -1),
        (calls.cause, len(CODES), -1),
        (calls.host_call, len(calls.host_calls), -1),
    ):
        if count and not (int(index.min()) >= least and int(index.max()) < limit):
            raise ValueError("an index lies outside of its list")
    if len(calls.members) != len(calls.groups):
        raise ValueError("the groups have other members")
    if (calls.end_ns < calls.start_ns).any() or trace.end_ns < trace.start_ns:
        raise ValueError("a time ends before it begins")
    if not all(0 <= row < count for row in calls.peers):
        raise ValueError("a message is of no call")
    for iteration in trace.iterations:
        if iteration.window.end_ns - iteration.window.start_ns != iteration.parts.window_ns:
            raise ValueError("an iteration has another length than its parts")
