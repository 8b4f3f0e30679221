"""Lines that say that a connection failed or that a communicator didn't come up.

NCCL prints a connection when it sets it up, before it connects. Where the log goes on to say that connecting
failed, the line proves no use. The words are those of NCCL 2.4 to 2.31 (src/misc/ibvwrap.cc, src/transport/net_ib,
src/misc/socket.cc, the NCCLCHECK macro), of aws-ofi-nccl and of PyTorch's ProcessGroupNCCL.
"""

from __future__ import annotations

import re
from enum import StrEnum

from wirecost.ncclog.grammar import text

MOST_FAILURES = 64
_LONGEST_WORDS = 160


class Concerns(StrEnum):
    """What a failure takes the proof from."""

    RDMA = "rdma"
    SOCKETS = "sockets"
    LIBFABRIC = "libfabric"
    ANY = "any"


# status=12 is IBV_WC_RETRY_EXC_ERR (rdma-core, libibverbs/verbs.h, enum ibv_wc_status).
_STATUS_WORDS = {
    5: "flushed after an earlier error",
    9: "invalid request at the other end",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retries exceeded: the other end doesn't answer",
    13: "receiver-not-ready retries exceeded",
}

_WARNINGS = (
    (
        Concerns.RDMA,
        re.compile(
            rb"Got completion (?:from peer \S+ )?with (?:error|status)[ =]"
            rb"|Call to (?:mlx5dv_|ibv_)(?:modify_qp|create_qp|create_cq|reg_mr|reg_dmabuf_mr|alloc_pd|post_send|"
            rb"post_recv|poll_cq)\w* failed"
            rb"|async fatal event|communicator encountered a fatal error"
        ),
    ),
    (
        Concerns.SOCKETS,
        re.compile(
            rb"Call to connect(?: to \S+)? failed|socket\w*Connect: [Cc]onnect\w* to .{0,80}(?:failed|returned)"
            rb"|Connect to \S+ failed|exceeded (?:retries|error count)|socket progress error"
            rb"|Call to (?:accept|listen|bind)\w* failed"
        ),
    ),
    (Concerns.LIBFABRIC, re.compile(rb"NET/OFI .{0,80}completed with error|NET/OFI .{0,80}RC: -?\d+, ERROR:")),
    (
        Concerns.ANY,
        re.compile(
            rb"Duplicate GPU detected|No transport found for rank|Failed to initialize any NET plugin"
            rb"|Failed to execute operation (?:Connect|Setup)|progressing operation=(?:Connect|Setup)"
        ),
    ),
)
# NCCLCHECK's trail of a call that failed, RCCL's with the path of its build. src/misc and src/proxy.cc leave one
# at every ordinary end of a job, and src/plugin where a device is only tried.
_TRAIL = re.compile(
    rb"(?:/\S{0,200}/)?(?:src/)?(transport\.cc|transport/[\w/]+\.cc|init\.cc|bootstrap\.cc|group\.cc):\d+"
    rb"(?: \(\w+\))? -> ([1-9])\b"
)
_ABORTED = 3  # ncclInternalError, which is what an aborted call returns, too
_STATUS = re.compile(rb"with (?:error|status)[ =](?:\w+\()?(\d+)")
_MODIFY = re.compile(rb"(Call to \S+ failed[^,]{0,80})")

_WATCHDOG = re.compile(rb"[Ww]atchdog caught collective operation timeout|detected by watchdog")
_SEQUENCE = re.compile(rb"SeqNum=(\d{1,18})")
_COMPLETED = re.compile(rb"last completed (?:NCCL )?work: (-?\d{1,18})")
_RAISED = re.compile(
    rb"NCCL error(?: in)?: .{0,200}?(unhandled system error|remote process exited[^,]{0,60}|internal error"
    rb"|unhandled cuda error|ncclSystemError|ncclRemoteError|ncclInternalError)"
)
MOST_FIRST = 1
"""PyTorch counts a group's collectives from 0 or 1, by version: from 2 on, one before has been completed."""


def failure_of(tail: bytes, *, warning: bool) -> tuple[Concerns, str] | None:
    """What a message of NCCL's says about a failure, or None where it says nothing of one."""
    if warning:
        for concerns, pattern in _WARNINGS:
            if (m := pattern.search(tail)) is not None:
                return concerns, _words(tail)
        return None
    m = _TRAIL.match(tail)
    if m is None or (int(m[2]) == _ABORTED and m[1].startswith((b"transport/", b"bootstrap"))):
        return None
    return Concerns.ANY, f"{text(m[1])} gave up with {text(m[2])}"


def _words(tail: bytes) -> str:
    if (status := _STATUS.search(tail)) is not None:
        number = int(status[1][:9])
        known = f", {_STATUS_WORDS[number]}" if number in _STATUS_WORDS else ""
        return f"a work request ended with status={number}{known}"
    if (m := _MODIFY.search(tail)) is not None:
        return text(m[1])
    return text(tail.strip())[:_LONGEST_WORDS]


def raised(line: bytes) -> tuple[Concerns, str] | None:
    """What a line of PyTorch's says about a failure: its watchdog's and what its calls raise."""
    if _WATCHDOG.search(line) is not None:
        return Concerns.ANY, "a collective timed out (PyTorch's watchdog)"
    if (m := _RAISED.search(line)) is not None:
        return Concerns.ANY, f"NCCL error: {text(m[1])}"
    return None


def completed_before(line: bytes) -> bool:
    """Whether a line of PyTorch's says that a collective was completed, before the one that failed if one did."""
    if (m := _COMPLETED.search(line)) is not None:
        return int(m[1]) >= 1
    m = _SEQUENCE.search(line) if _WATCHDOG.search(line) is not None else None
    return m is not None and int(m[1]) > MOST_FIRST
