"""Files of other tools: named, with what to give instead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from wirecost.trace.source import ForeignFile

WANTED = "a PyTorch profiler trace (.json, .json.gz, .json.zst) or an Nsight Systems .sqlite export"
_FLIGHT = (
    "a Flight Recorder dump of PyTorch's NCCL watchdog, which holds no time line of the device; give profiler "
    "traces (torch.profiler), or read it with torch.distributed.flight_recorder"
)
_SNAPSHOT = "a memory snapshot of PyTorch (torch.cuda.memory), which holds no time line; give profiler traces"
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\(dp?\d|\(lp?\d|\}q|\]q|cbuiltins|c__main__|ccollections")

# Names in the first bytes of a pickle that give its kind. The bytes are searched and never loaded.
_FLIGHT_MARKS = (b"pg_config", b"profiling_name", b"collective_seq_id", b"nccl_comm_state")
_SNAPSHOT_MARKS = (b"device_traces", b"segments", b"allocator_settings")

# Top-level keys of JSON files -> description of such a file.
_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset(("schema", "nodes")),
        "an execution trace (Chakra, PyTorch's ExecutionTraceObserver), which holds no device times; give the "
        "profiler trace that was recorded beside it",
    ),
    (
        frozenset(("workload_graph",)),
        "a graph of Chakra's JSON feeder, which holds no device times; give profiler traces",
    ),
    (frozenset(("entries", "pg_config")), _FLIGHT),
    (frozenset(("entries", "version")), _FLIGHT),
    (frozenset(("segments", "device_traces")), _SNAPSHOT),
    (frozenset(("rocprofiler-sdk-tool",)), "rocprofv3's own JSON; give a trace of PyTorch's profiler"),
    (frozenset(("benchmarks", "context")), "results of a benchmark; give profiler traces"),
    (frozenset(("stackFrames", "samples")), "a CPU profile; give profiler traces"),
)


def refuse_head(path: Path, head: bytes) -> None:
    """Raises ForeignFile for a file whose first bytes are those of another tool's."""
    name = path.name.lower()
    if head.startswith(b"PK\x03\x04"):
        raise ForeignFile(f"{path}: a zip archive; unpack it first; expected {WANTED}")
    if name.endswith((".nsys-rep", ".qdrep")):
        raise ForeignFile(
            f"{path}: an Nsight Systems report; export it first: nsys export --type sqlite {path.name}"
        )
    if name.endswith(".et"):
        raise ForeignFile(
            f"{path}: an execution trace of Chakra as a protocol buffer, which holds no time line of the device; "
            "give the profiler trace that it was made from"
        )
    if name.endswith(".xplane.pb"):
        raise ForeignFile(
            f"{path}: an XSpace protocol buffer of JAX's or TensorFlow's profiler; give the trace.json.gz beside "
            "it, which jax.profiler and the profile plugin write"
        )
    if _PICKLE.match(head):
        marks = _FLIGHT_MARKS, _SNAPSHOT_MARKS
        flight, snapshot = (any(m in head for m in listed) for listed in marks)
        kind = _FLIGHT if flight else _SNAPSHOT if snapshot else ""
        what = f"{kind}; it is a pickle" if kind else "a pickle"
        raise ForeignFile(f"{path}: {what}, and pickles are never loaded; expected {WANTED}")
    if head.startswith((b"\x0a", b"\n\x0e")) and b"perfetto" in head.lower():
        raise ForeignFile(f"{path}: a Perfetto trace in its binary form; expected {WANTED}")


def refuse_keys(path: Path, keys: Collection[str]) -> None:
    """Raises ForeignFile for a JSON object without events whose keys are those of another tool's."""
    for marks, what in _KEYS:
        if marks <= set(keys):
            raise ForeignFile(f"{path}: {what}")


def refuse_events(path: Path, *, count: int, phases: Counter[str], names: Collection[str], strays: int) -> None:
    """Raises ForeignFile for a list of events none of which is device work or an annotation.

    Args:
        count: events in all.
        phases: of events without a category.
        names: of categories that weren't known.
        strays: elements that are no events at all.
    """
    if count == 0 and strays == 0:
        raise ForeignFile(f"{path}: an empty list of events: nothing was recorded; expected {WANTED}")
    if count == 0:
        raise ForeignFile(
            f"{path}: a list of numbers, as the profiler's memory time line (export_memory_timeline) is; expected "
            f"{WANTED}"
        )
    if {"COLL", "P2P", "PROXY", "NET", "GROUP"} & set(names):
        raise ForeignFile(
            f"{path}: events of NCCL's profiler plugin, which holds no compute; give the traces of torch.profiler"
        )
    if phases["B"] and phases["E"] and not phases["X"]:
        raise ForeignFile(
            f"{path}: begin and end events alone, as Horovod's time line has, which holds no device work; "
            f"expected {WANTED}"
        )
    if phases["b"] and phases["e"] and not phases["X"]:
        raise ForeignFile(f"{path}: asynchronous events alone, no device work; expected {WANTED}")
