"""The operation of a communication by its name, its total size and its bus factor."""

from __future__ import annotations

import re

from wirecost.trace.names import function_name

# Operation by name, first match wins. Names without underscores, in lower case.
_OPERATIONS = (
    ("reducescatter|(^|[^a-z])rsgfx", "reduce_scatter"),
    ("allreduce|crossdevicereduce|rsag|lamport|(^|[^a-z])ar(ll)?gfx", "all_reduce"),
    ("allgather|(^|[^a-z])aggfx", "all_gather"),
    ("alltoall|all2all|ulyssesa2a|helixa2a", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv|coalesced|batchisendirecv|pointtopoint", "send_recv"),
    ("collectivepermute", "send_recv"),
    ("barrier|ranksync", "barrier"),
    ("dispatch", "dispatch"),
    ("combine", "combine"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    (r"send", "send"),
    (r"recv|receive", "recv"),
)
_OPERATION = [(re.compile(pattern), op) for pattern, op in _OPERATIONS]
UNKNOWN = "unknown"

# c10::ScalarType names (c10/core/ScalarType.h) as ParamCommsUtils writes them, in bytes.
DTYPE_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "BFloat16": 2, "Float": 4,
    "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e5m2": 1, "Float8_e4m3fn": 1,
    "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1, "Float8_e8m0fnu": 1, "Float4_e2m1fn_x2": 1,
    "UInt16": 2, "UInt32": 4, "UInt64": 8, "QInt8": 1, "QUInt8": 1,
    "QInt32": 4,
}  # fmt: skip


def operation(name: str) -> str:
    """Returns the operation that the name of a kernel, annotation or argument stands for; `unknown` if it is
    unclear.

    Each operation has one name for all writers: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`,
    `broadcast`, `reduce`, `send_recv`, `send`, `recv`, `gather`, `scatter`, `barrier`, `dispatch`, `combine`.
    """
    function = function_name(name)
    head = function.lower().replace("_", "").replace("-", "")
    for prefix in ("nccldevkernel", "ncclkernel"):
        if head.startswith(prefix):
            # ncclDevKernel_AllReduce_Sum_f32_RING_LL: the operation comes first.
            head = function[function.lower().index("kernel") + 6 :].lstrip("_").split("_", 1)[0].lower()
            break
    for pattern, op in _OPERATION:
        if pattern.search(head):
            return op
    return UNKNOWN


def bus_factor(op: str, group_size: int | None) -> float | None:
    """Returns busbw / algbw of an operation over a group (nccl-tests, doc/PERFORMANCE.md); None if it isn't
    defined.
    """
    if op in ("broadcast", "reduce", "send_recv", "send", "recv"):
        return 1.0
    if group_size is None or group_size < 1:
        return None
    if op == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (group_size - 1) / group_size
    return None


def total_bytes(op: str, elements_in: int | None, elements_out: int | None, dtype: str | None) -> int | None:
    """Returns the total size S of a collective from kineto's per-rank element counts; None if it isn't known.

    S is the output of an all-gather, a gather and a receive, and the input of all other operations.
    """
    width = DTYPE_BYTES.get(dtype or "")
    elements = elements_out if op in ("all_gather", "gather", "recv") else elements_in
    if width is None or elements is None or op == UNKNOWN:
        return None
    if not elements_in and not elements_out and op != "barrier":
        return None  # a coalesced call without its parts: no kernel is launched for empty messages
    return elements * width
