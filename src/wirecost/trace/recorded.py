"""What is kept of one file: columns of device work, annotations, what communication says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wirecost.trace.classify import UNKNOWN

UNKNOWN_GROUP = "unknown"


@dataclass(slots=True)
class Call:
    """What a communication event says of itself; None is unknown. `group` is the process group's name."""

    op: str = UNKNOWN
    group: str = UNKNOWN_GROUP
    members: str = ""
    group_size: int | None = None
    bytes: int | None = None
    dtype: str | None = None
    sequence: int | None = None
    op_source: str = "name"


Int64 = npt.NDArray[np.int64]


@dataclass
class Columns:
    """Device events of one file: int64 nanoseconds, without the base time."""

    start_ns: Int64
    end_ns: Int64
    kind: npt.NDArray[np.int8]
    name: Int64  # index into `names`
    stream: Int64  # index into `streams`
    comm: npt.NDArray[np.bool_]
    names: list[str]
    streams: list[tuple[str, str]]  # (device, stream)
    calls: dict[int, Call]  # by row, for communication


@dataclass
class Annotation:
    name: str
    start_ns: int
    end_ns: int
    stream: int  # index into the streams; -1 on the CPU


@dataclass
class Recorded:
    """Everything of one file that the answer is computed from."""

    device: Columns
    gpu_annotations: list[Annotation] = field(default_factory=list)
    cpu_annotations: list[Annotation] = field(default_factory=list)
    record_start_ns: int | None = None
    record_end_ns: int | None = None
    cpu_ops: list[tuple[int, int]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    sub_microsecond: bool = True
