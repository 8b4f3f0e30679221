"""JAX's and XLA's profiles as `trace.json.gz`: the streams of their GPUs, the host's launches and steps.

The layout is that of the trace viewer of TensorBoard's profile plugin
(tsl/profiler/convert/trace_events_to_json): a process `/device:GPU:0` for each device with a thread `Stream
#N(...)` for each stream. The other threads of a device show the same time again, by module, operation or source
line.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from wirecost.trace.categories import COPY, FILL, KERNEL
from wirecost.trace.lanes import Lanes
from wirecost.trace.recorded import NONE, Annotation, Columns, Int64, Launches, Recorded
from wirecost.trace.source import TraceError

_GPU = re.compile(r"/device:GPU:(\d+)|^GPU:(\d+)")
_DEVICE = re.compile(r"/device:(\w+):\d+")
_STREAM = re.compile(r"^Stream #|^Stream:? ?\d", re.IGNORECASE)
# Operations of XLA that communicate (xla/hlo/ir/hlo_opcode.h), with the suffixes of their asynchronous forms.
_COLLECTIVE = re.compile(
    r"^(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast"
    r"|send|recv)(-start|-done)?(\.\d+)*$"
)
_KINDS = ((re.compile(r"^mem ?set", re.IGNORECASE), FILL), (re.compile(r"^mem ?cpy", re.IGNORECASE), COPY))


def is_jax(process_names: list[str]) -> bool:
    return any(_DEVICE.search(name) for name in process_names)


def jax_recorded(lanes: Lanes) -> Recorded:
    """Returns the device work of a JAX profile.

    Raises:
        TraceError: for a profile of devices other than GPUs.
    """
    gpu = np.array([bool(_GPU.search(p) and _STREAM.search(t)) for p, t, _ in lanes.lanes], dtype=bool)
    on_device = gpu[lanes.lane] if len(lanes) else np.zeros(0, dtype=bool)
    if not on_device.any():
        others = sorted({m[1] for p, _, _ in lanes.lanes if (m := _DEVICE.search(p))} - {"GPU"})
        what = f"of {others[0]} devices" if others else "without a stream of a GPU"
        raise TraceError(
            f"a JAX/XLA profile {what}; only the streams of GPUs are read (a process '/device:GPU:0' with threads "
            "'Stream #N(...)')"
        )
    rows = np.flatnonzero(on_device)
    # Devices are known by their names: a process id is the trace viewer's own.
    streams = [(p.rsplit(":", 1)[-1] if _GPU.search(p) else pid, t or "host") for p, t, pid in lanes.lanes]
    operations = lanes.text("hlo_op")
    hosts = np.flatnonzero(~on_device & (lanes.number("correlation_id") != NONE))
    columns = Columns(
        lanes.start_ns[rows],
        lanes.end_ns[rows],
        _kinds(lanes)[lanes.name[rows]],
        lanes.name[rows],
        lanes.lane[rows],
        np.zeros(len(rows), dtype=np.bool_),
        lanes.names,
        streams,
        {},
        correlation=lanes.number("correlation_id")[rows],
        operators={n: op for n, row in enumerate(rows) if _COLLECTIVE.match(op := operations[row])},
    )
    return Recorded(
        device=columns,
        cpu_annotations=_steps(lanes, np.flatnonzero(~on_device)),
        launches=_launches(lanes, hosts),
    )


def _kinds(lanes: Lanes) -> npt.NDArray[np.int8]:
    return np.array(
        [next((kind for pattern, kind in _KINDS if pattern.search(n)), KERNEL) for n in lanes.names] or [KERNEL],
        dtype=np.int8,
    )


def _launches(lanes: Lanes, rows: Int64) -> Launches:
    rows = rows[np.lexsort((-lanes.end_ns[rows], lanes.start_ns[rows]))]
    threads = [(pid, t or p) for p, t, pid in lanes.lanes]
    return Launches(
        lanes.start_ns[rows],
        lanes.end_ns[rows],
        lanes.number("correlation_id")[rows],
        lanes.name[rows],
        lanes.lane[rows],
        lanes.names,
        threads,
    )


def _steps(lanes: Lanes, rows: Int64) -> list[Annotation]:
    """Returns the `jax.profiler.StepTraceAnnotation`s, named with their number."""
    numbers = lanes.number("step_num")
    return [
        Annotation(
            f"{lanes.names[lanes.name[row]]} {numbers[row]}",
            int(lanes.start_ns[row]),
            int(lanes.end_ns[row]),
            NONE,
            int(lanes.lane[row]),
            step=True,
        )
        for row in sorted(rows[numbers[rows] != NONE], key=lambda r: int(lanes.start_ns[r]))
    ]
