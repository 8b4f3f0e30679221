"""Maps a NET plugin's name to the network that it uses."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class Wire(StrEnum):
    RDMA = "rdma"
    TCP = "tcp"
    LIBFABRIC = "libfabric"  # whatever its provider is
    UNKNOWN = "unknown"


# Names as plugins print them in `NET/<name>/<dev>`; versions ("_v8") and case are ignored. Sources: NCCL (IB,
# Socket), nccl-rdma-sharp-plugins (IBext, UCX, SHARP), RCCL (IB-ROCM, IB-CAST), aws-ofi-nccl (AWS Libfabric,
# Libfabric; OFI in HPE's build), Google (FastSocket, GPUDirectTCPX, FasTrak, gIB). Plugins that aren't documented
# to use only one network are left out.
_WIRES = (
    (re.compile(r"ib(ext)?|ib-(rocm|cast)|gib|ucx.*|sharp|roce|rocex?|.*rdma.*", re.I), Wire.RDMA),
    (re.compile(r"socket|fastsocket|gpudirecttcpx.*|fastrak|tcp.*", re.I), Wire.TCP),
    (re.compile(r"aws libfabric|libfabric|ofi", re.I), Wire.LIBFABRIC),
)
_VERSION = re.compile(r"_v\d+$")

# libfabric's core providers (fi_provider(7)), before a utility layer: "verbs;ofi_rxm".
_RDMA_PROVIDERS = {"cxi", "verbs", "psm2", "psm3", "opx", "gni"}
_TCP_PROVIDERS = {"tcp", "sockets", "udp", "net"}


@lru_cache(maxsize=1024)
def wire_of(network: str) -> Wire:
    """Returns the network behind a NET plugin's name."""
    name = _VERSION.sub("", network)
    return next((wire for pattern, wire in _WIRES if pattern.fullmatch(name)), Wire.UNKNOWN)


def provider_kind(provider: str) -> str | None:
    """Returns "efa", "rdma" or "tcp" for a libfabric provider's name; None for an unknown one."""
    core = provider.lower().split(";")[0].strip()
    if core.startswith("efa"):
        return "efa"
    if core in _RDMA_PROVIDERS:
        return "rdma"
    return "tcp" if core in _TCP_PROVIDERS else None


_IPOIB = re.compile(r"ib|.*[-_.]ib(?=\d|[ps]\d|$)|(?:bond|team|br|vlan)ib\d", re.I)


def is_ipoib(interface: str) -> bool:
    """Returns whether an interface's name is one of IPoIB's: ib0, ibp12s0, ibs85f0, ib0.8001,
    ib-bond0, bond-ib0.
    """
    return _IPOIB.match(interface) is not None


_VIRTUAL = re.compile(
    r"(virbr|docker|br-|veth|cni|flannel|cali|vxlan|tun|tap|lxc|lxd|podman|vmnet|kube|weave|dummy)"
)


def is_virtual(interface: str) -> bool:
    """Returns whether an interface is a bridge or virtual. Traffic between hosts should not use these."""
    return _VIRTUAL.match(interface) is not None
