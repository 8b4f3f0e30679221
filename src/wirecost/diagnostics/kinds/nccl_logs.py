"""Codes of NCCL and RCCL logs."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity

EVERY_RANK = "collect every rank's log (NCCL_DEBUG_FILE=nccl.%h.%p.log)"
MORE_LOG = "log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.NCCL_LOGS, meaning, remedy)


KINDS = (
    _kind(
        "communicators_differ",
        Severity.WARNING,
        "Communicators of the job use different transports. The verdict on the log is that of the edges between "
        "hosts, where there are any.",
        "look at each communicator's own verdict",
    ),
    _kind(
        "connection_failed",
        Severity.ERROR,
        "A connection failed after the log shows its set-up. NCCL prints a connection before it connects, so the "
        "log doesn't prove that any data was sent over it.",
        "check the link between these hosts (`wirecost doctor` on each; ibping or perftest between them; GID "
        "index, MTU, firewall, cross-rail routes), then run again",
    ),
    _kind(
        "edges_left_out",
        Severity.WARNING,
        "The log has more edges than fit into bounded memory. The verdict is based on the first ones.",
    ),
    _kind(
        "edges_without_communicator",
        Severity.INFO,
        "Edges can belong to more than one communicator, or to one whose Init line is missing. They are listed "
        "separately.",
        EVERY_RANK,
    ),
    _kind(
        "efa_provider_not_efa",
        Severity.WARNING,
        "The libfabric plugin is loaded and its provider is not efa. The traffic goes over TCP.",
        "check that the instance has EFA interfaces, that the container sees /dev/infiniband, and set "
        "FI_PROVIDER=efa",
    ),
    _kind(
        "efa_provider_unknown",
        Severity.WARNING,
        "The log doesn't name the libfabric provider. The plugin's name suggests EFA, and a TCP provider would "
        "look the same.",
        MORE_LOG,
    ),
    _kind(
        "failed_later",
        Severity.WARNING,
        "The job failed after collectives had completed. The verdict describes the transport until then.",
    ),
    _kind(
        "failure_elsewhere",
        Severity.INFO,
        "The log reports a failure that doesn't concern the connections behind the verdict.",
    ),
    _kind(
        "files_skipped",
        Severity.INFO,
        "Files that are not text were left out.",
    ),
    _kind(
        "gdr_differs_by_nic",
        Severity.WARNING,
        "Some NICs of a host are used with GPUDirect and others without. Channels over the latter slow down all "
        "others.",
        "name the NICs near the GPUs (NCCL_IB_HCA), or enable GPUDirect for the others",
    ),
    _kind(
        "gdr_receive_only",
        Severity.WARNING,
        "GPUDirect is used for receiving only. The sending side is staged through host memory.",
        "try NCCL_NET_GDR_READ=1 and measure",
    ),
    _kind(
        "gdr_send_only",
        Severity.WARNING,
        "GPUDirect is used for sending only. The receiving side is staged through host memory.",
        "load nvidia-peermem or use DMA-BUF on every host (`wirecost doctor`)",
    ),
    _kind(
        "host_names_not_unique",
        Severity.WARNING,
        "One host name stands for several machines. Ranks can't be told apart by host.",
        "give machines different host names, or paste the log with its own",
    ),
    _kind(
        "hosts_from_hostid",
        Severity.INFO,
        "NCCL_HOSTID is set. It distinguishes the hosts, as in NCCL, and several hosts may be one machine.",
    ),
    _kind(
        "hosts_unknown",
        Severity.WARNING,
        "The prefix host:pid:tid is cut off, so the host of a rank is unknown. Network edges are taken as edges "
        "between hosts, but they could connect containers of one host.",
        "keep the prefix when you copy a log",
    ),
    _kind(
        "ib_device_not_opened",
        Severity.WARNING,
        "NCCL could not open an RDMA device. That host has fewer NICs than the others, and a ring waits for it.",
        "pass all of /dev/infiniband into the container, or name the same NICs everywhere (NCCL_IB_HCA)",
    ),
    _kind(
        "ib_disabled",
        Severity.WARNING,
        "The environment switched RDMA off. NCCL used sockets.",
        "unset NCCL_IB_DISABLE and NCCL_NET to use the InfiniBand or RoCE device",
    ),
    _kind(
        "ib_no_device",
        Severity.WARNING,
        "NCCL found no InfiniBand or RoCE device. It used sockets.",
        "in a container pass the devices in (docker: --device=/dev/infiniband --ulimit memlock=-1; kubernetes: "
        "the RDMA device plugin's resource); `wirecost doctor` inside it shows what is missing",
    ),
    _kind(
        "in_network_reduction",
        Severity.INFO,
        "Switches reduce what collectives send (CollNet). Bus bandwidth is not the traffic of the links.",
    ),
    _kind(
        "ipoib_not_rdma",
        Severity.WARNING,
        "Sockets run over an InfiniBand interface. That is TCP over IPoIB, not RDMA.",
        "to get RDMA, let NCCL see the InfiniBand device (/dev/infiniband in a container, libibverbs, "
        "NCCL_IB_DISABLE unset)",
    ),
    _kind(
        "libfabric_provider_unknown",
        Severity.WARNING,
        "The libfabric provider is not one whose wire is known here. The transport is unknown.",
    ),
    _kind(
        "lines_cut",
        Severity.WARNING,
        "Lines are cut or run into each other. Their unambiguous parts are used.",
        "write one file for each process: NCCL_DEBUG_FILE=nccl.%h.%p.log",
    ),
    _kind(
        "log_truncated",
        Severity.WARNING,
        "A log is cut off. The part before the cut is used.",
    ),
    _kind(
        "mixed_transports",
        Severity.WARNING,
        "Edges between hosts don't all use the same transport. A collective goes at the pace of its slowest edge.",
        "make every host offer the same devices (compare `wirecost doctor` on each)",
    ),
    _kind(
        "net_inside_host",
        Severity.WARNING,
        "Ranks of one host communicate over the network. Peer access and shared memory between them are lost.",
        "give one container all GPUs, or share /dev/shm, the PID and IPC namespaces and NCCL_HOSTID between them",
    ),
    _kind(
        "network_lines_unread",
        Severity.WARNING,
        "Connection lines of a network can't be read. The verdict is based on the others.",
    ),
    _kind(
        "no_ib_library",
        Severity.WARNING,
        "NCCL could not open libibverbs. It used sockets.",
        "install libibverbs1 (rdma-core) in the container or on the host",
    ),
    _kind(
        "one_side_only",
        Severity.WARNING,
        "The log shows only one end of the network edges. Whether the other end uses GPUDirect is unknown.",
        EVERY_RANK,
    ),
    _kind(
        "peer_hosts_not_in_log",
        Severity.WARNING,
        "The log lacks the ranks at the other end of its network edges. These edges are taken as edges between "
        "hosts.",
        EVERY_RANK,
    ),
    _kind(
        "rdma_staged",
        Severity.WARNING,
        "RDMA is used without GPUDirect. Data is staged through host memory on both ends, which costs bandwidth.",
        "load nvidia-peermem or use DMA-BUF on every host (`wirecost doctor`)",
    ),
    _kind(
        "sendrecv_differs",
        Severity.WARNING,
        "Connections for send and receive use another transport than those for collectives.",
        "judge pipeline and data-parallel traffic separately",
    ),
    _kind(
        "several_attempts",
        Severity.WARNING,
        "The log holds several jobs or attempts, one after another. They may have used different transports.",
        "give each attempt its own log",
    ),
    _kind(
        "shm_inside_host",
        Severity.WARNING,
        "Edges inside a host go through host memory and not through GPU peer access. That costs bandwidth.",
        "`nvidia-smi topo -p2p r` shows which GPUs have peer access",
    ),
    _kind(
        "sockets_on_loopback",
        Severity.WARNING,
        "Sockets use lo: the ranks communicate over the loopback interface of one machine. The log gives no "
        "information about a network.",
        "set NCCL_SOCKET_IFNAME to the network's interface",
    ),
    _kind(
        "sockets_on_virtual_interface",
        Severity.WARNING,
        "Sockets are striped over a virtual interface that traffic between hosts should not use. Such a bridge "
        "is slow or doesn't reach the other hosts.",
        "name the real interface: NCCL_SOCKET_IFNAME=eth0 (yours)",
    ),
    _kind(
        "tcp_interface_unknown",
        Severity.WARNING,
        "The log doesn't name the interface of its sockets. It may be Ethernet or IPoIB.",
        MORE_LOG,
    ),
    _kind(
        "transport_not_as_asked",
        Severity.ERROR,
        "A run requested one transport and used another, or the log doesn't prove which. Its numbers are not "
        "those of its network.",
        "`wirecost doctor` on the hosts shows what prevents the transport",
    ),
    _kind(
        "versions_differ",
        Severity.WARNING,
        "Ranks use different versions of NCCL. That can hang, or corrupt results.",
        "install the same version on every host (or the log holds several jobs)",
    ),
)
