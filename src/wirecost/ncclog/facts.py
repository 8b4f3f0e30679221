"""What an NCCL log says beside connections and communicators: versions, devices, settings, refusals."""

from __future__ import annotations

import re

from wirecost.ncclog.grammar import text
from wirecost.ncclog.state import LogState, Process, Thread

_VERSION = re.compile(rb"([NR]CCL) version :?\s*([0-9][^\s]*)")
_SELECTED = re.compile(rb"(?:Using (?:internal )?[Nn]etwork|Assigned NET plugin) (.+?)(?: to comm)?\s*$")
_ENVIRONMENT = re.compile(rb"(NCCL_[A-Z0-9_]+) set (?:by environment )?to (.*?)\.?\s*$")
_INTERFACE = re.compile(rb"\[(\d+)\]([^:\s\]]+):([^\s<]+)(?:<\d+>)?")
_IB_DEVICE = re.compile(rb"\[\d+\](\S+?:\d+/(?:IB|RoCE))")
_PROVIDER = re.compile(rb"Selected [Pp]rovider is ([^\s,(]+)")


def take_fact(state: LogState, thread: Thread, tail: bytes) -> None:
    """Notes down what a message says beside connections and communicators: devices, settings, refusals."""
    process = thread.process
    if (m := _SELECTED.match(tail)) is not None:
        home = thread.setting_up.selected if thread.setting_up is not None else process.selected
        if (name := text(m[1])) not in home:
            home.append(name)
    elif tail.startswith(b"NET/Socket : Using [") or tail.startswith(b"NET/FastSocket : Using ["):
        _interfaces(process, tail)
    elif tail.startswith(b"NET/IB : Using"):
        state.ib_devices.update(text(d) for d in _IB_DEVICE.findall(tail)[:64])
    elif tail.startswith(b"NET/IB : No device found"):
        state.no_ib_device = True
    elif b"Failed to open libibverbs" in tail:
        state.no_ib_library = True
    elif (m := _PROVIDER.search(tail)) is not None:
        process.provider = text(m[1])
    elif (m := _ENVIRONMENT.match(tail)) is not None:
        if len(process.environment) < 256:
            process.environment[m[1].decode()] = text(m[2])
    elif b"GPU Direct RDMA Disabled" in tail and not tail.startswith(b"NET/Socket"):
        words = text(tail.strip())
        if words in state.gdr_refusals or len(state.gdr_refusals) < 64:
            state.gdr_refusals[words] = state.gdr_refusals.get(words, 0) + 1
    elif tail.startswith(b"P2P is disabled between"):
        state.p2p_refusals += 1
    elif (m := _VERSION.search(tail)) is not None:
        version = f"{text(m[1])} {text(m[2])}"
        if version not in state.versions and len(state.versions) < 16:
            state.versions.append(version)


def _interfaces(process: Process, tail: bytes) -> None:
    for number, interface, address in _INTERFACE.findall(tail)[:64]:
        process.interfaces[int(number)] = text(interface)
        process.addresses.add(text(address).rsplit("%", 1)[0])
