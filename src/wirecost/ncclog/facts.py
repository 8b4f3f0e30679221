"""Reads facts other than connections and communicators from an NCCL log: versions, devices, settings, refusals."""

from __future__ import annotations

import re

from wirecost.ncclog.failures import MOST_FAILURES, Concerns, completed_before, failure_of, raised
from wirecost.ncclog.grammar import parse_abort, text
from wirecost.ncclog.state import Failure, LogState, Process, Thread

_VERSION = re.compile(rb"([NR]CCL) version :?\s*([0-9][^\s]*)")
_SELECTED = re.compile(
    rb"(?:Using (?:internal )?[Nn]etwork|Assigned NET plugin) ([^/\"'\\<>|,;\x00-\x1f]{1,64}?)"
    rb"(?: to comm|\s*$|\s\s|\s\w+=|[\"'\\<>|,;])"
)
_ENVIRONMENT = re.compile(rb"(NCCL_[A-Z0-9_]+) set (?:by environment )?to ([^\s\"'\\<|]*)")
_NET_NAME = re.compile(rb"Comm config netName reset to NCCL_NET=([^\s\"'\\<|]*)")
_UNOPENED = re.compile(rb"NET/IB ?: Unable to open device ([A-Za-z0-9_.-]{1,64})")
_INTERFACE = re.compile(rb"\[(\d+)\]([^:\s\]]+):([^\s<]+)(?:<\d+>)?")
_IB_DEVICE = re.compile(rb"\[\d+\](\S+?:\d+/(?:IB|RoCE))")
_MOST_NAMES = 64
_LONGEST_WARNING = 120
_PROVIDER = re.compile(rb"Selected [Pp]rovider is ([^\s,(]+)")


def take_fact(state: LogState, thread: Thread, tail: bytes, *, warning: bool = False, plain: bool = False) -> None:
    """Records the devices, settings, refusals and failures that a message contains.

    Args:
        warning: whether the message is one of NCCL's warnings.
        plain: whether no "NCCL INFO" or "NCCL WARN" precedes it.
    """
    process = thread.process
    if (failure := raised(tail) if plain else failure_of(tail, warning=warning)) is not None:
        concerns, words = failure
        if not plain and not warning and process.last_warning:
            words = f"{process.last_warning} ({words})"
        _failed(state, None if thread.anonymous else process, concerns, words)
    if warning:
        process.last_warning = text(tail.strip())[:_LONGEST_WARNING]
    if plain:
        state.completed_before |= completed_before(tail)
    for take in (_take_network, _take_unavailable, _take_setting, _take_refusal):
        if take(state, thread, tail):
            return
    if (m := _VERSION.search(tail)) is not None:
        version = f"{text(m[1])} {text(m[2])}"
        if version not in state.versions and len(state.versions) < 16:
            state.versions.append(version)


def _take_network(state: LogState, thread: Thread, tail: bytes) -> bool:
    """Records the network, interfaces and devices that NCCL uses. Returns False if the line is of another kind."""
    process = thread.process
    if (m := _SELECTED.match(tail)) is not None:
        home = thread.setting_up.selected if thread.setting_up is not None else process.selected
        if (name := text(m[1])) not in home and len(home) < _MOST_NAMES:
            home.append(name)
    elif tail.startswith(b"NET/Socket : Using [") or tail.startswith(b"NET/FastSocket : Using ["):
        _interfaces(process, tail)
    elif tail.startswith(b"NET/IB : Using"):
        state.ib_devices.update(text(d) for d in _IB_DEVICE.findall(tail)[:64])
    else:
        return False
    return True


def _take_unavailable(state: LogState, thread: Thread, tail: bytes) -> bool:
    """Records InfiniBand devices and libraries that are missing. Returns False if the line is of another kind."""
    if tail.startswith(b"NET/IB : No device found"):
        state.no_ib_device = True
    elif b"Failed to open libibverbs" in tail or tail.startswith(b"Count not open libibverbs.so.1"):
        state.no_ib_library = True
    elif (m := _UNOPENED.match(tail)) is not None:
        if len(state.unopened) < _MOST_NAMES:
            state.unopened.add((thread.process.host_identity, text(m[1])))
    else:
        return False
    return True


def _take_setting(_: LogState, thread: Thread, tail: bytes) -> bool:
    """Records the provider and NCCL's variables. Returns False if the line is of another kind."""
    process = thread.process
    if (m := _PROVIDER.search(tail)) is not None:
        process.provider = text(m[1])
    elif (m := _NET_NAME.match(tail)) is not None:
        process.environment["NCCL_NET"] = text(m[1])
    elif (m := _ENVIRONMENT.match(tail)) is not None:
        if len(process.environment) < 256:
            process.environment[m[1].decode()] = text(m[2].removesuffix(b"."))
    else:
        return False
    return True


def _take_refusal(state: LogState, _: Thread, tail: bytes) -> bool:
    """Records why GPUs don't access each other or the network directly. Returns False if the line is of another
    kind.
    """
    if b"GPU Direct RDMA Disabled" in tail and not tail.startswith(b"NET/Socket"):
        words = text(tail.strip())
        if words in state.gdr_refusals or len(state.gdr_refusals) < 64:
            state.gdr_refusals[words] = state.gdr_refusals.get(words, 0) + 1
    elif tail.startswith(b"P2P is disabled between"):
        state.p2p_refusals += 1
    else:
        return False
    return True


def take_abort(state: LogState, thread: Thread, tail: bytes) -> bool:
    """Records that a communicator was aborted before it was complete. Returns whether the line is about an abort.

    A later abort is the way in which PyTorch ends a successful job.
    """
    aborted = parse_abort(tail)
    if aborted is None:
        return False
    comm, rank = aborted
    member = thread.process.latest.get(aborted)
    if member is not None and not member.complete:
        words = f"rank {rank} was aborted before its communicator came up"
        _failed(state, thread.process, Concerns.ANY, words, comm)
    return True


def _failed(
    state: LogState, process: Process | None, concerns: Concerns, words: str, comm: str | None = None
) -> None:
    known = any(f.process is process and f.concerns is concerns for f in state.failures if comm is None)
    if not known and len(state.failures) < MOST_FAILURES:
        state.failures.append(Failure(process, concerns, words, comm, len(state.processes)))


def _interfaces(process: Process, tail: bytes) -> None:
    for number, interface, address in _INTERFACE.findall(tail)[:64]:
        process.interfaces[int(number)] = text(interface)
        process.addresses.add(text(address).rsplit("%", 1)[0])
