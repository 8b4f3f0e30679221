"""Environment variables that make NCCL and gloo use a network and write logs."""

from __future__ import annotations

from pathlib import Path

from wirecost.emulation.hosts import INTERFACE
from wirecost.spec.network import Network


def nccl_log_environment(path: Path) -> dict[str, str]:
    """Returns variables that make NCCL log to `path`. The log shows which transport NCCL really uses."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P", "NCCL_DEBUG_FILE": str(path)}


def local_sockets(network: Network) -> dict[str, str]:
    """Returns variables that keep the sockets of this machine's ranks from other machines."""
    return {"GLOO_SOCKET_IFNAME": "lo"} | ({"NCCL_SOCKET_IFNAME": "lo"} if network.inside else {})


def network_environment(network: Network, host: int, *, emulated: bool) -> dict[str, str]:
    """Returns variables that make NCCL and gloo use a network.

    Args:
        host: the rank's host. NCCL treats ranks of different hosts as remote.
        emulated: whether the network's emulation is used instead of its native form.
    """
    emulation, native = network.emulate, network.native
    if not emulated or emulation is None:
        variables = dict(native.environment) if native else {}
        interface = native.interface if native else None
    else:
        variables = {
            # NCCL takes ranks with another host ID to be on another host: no peer access, no shared memory.
            "NCCL_HOSTID": f"wirecost-host-{host}",
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_NTHREADS": str(emulation.socket_threads),
            "NCCL_NSOCKS_PERTHREAD": str(emulation.sockets_per_thread),
        }
        interface = INTERFACE
    if interface:
        variables |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return variables
