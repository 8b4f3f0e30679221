"""Each conclusion that people draw wrongly from an NCCL log: the verdict gets it right and says so."""

from __future__ import annotations

import pytest

from wirecost.ncclog import GpuDirect, Transport, Verdict, Where, read_text

A = "alpha:100:200 [0] NCCL INFO "
B = "beta:100:200 [0] NCCL INFO "


def start(who: str, rank: int, nranks: int = 2, device: int = 0, bus_id: str = "17000") -> str:
    return (
        f"{who}ncclCommInitRank comm 0xa{rank} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} "
        f"busId {bus_id} commId 0xc1 - Init START\n"
    )


TWO = start(A, 0) + start(B, 1)


def edges(net: str, back: str | None = None) -> str:
    """The four lines of a ring of two hosts: `net` on the sending ends, `back` on the receiving ones."""
    back = back or net
    return (
        f"{A}Channel 00/0 : 1[0] -> 0[0] [receive] via {back}\n{A}Channel 00/0 : 0[0] -> 1[0] [send] via {net}\n"
        f"{B}Channel 00/0 : 0[0] -> 1[0] [receive] via {back}\n{B}Channel 00/0 : 1[0] -> 0[0] [send] via {net}\n"
    )


def codes(verdict: Verdict) -> set[str]:
    return {w.code for w in verdict.diagnostics}


@pytest.mark.parametrize("interface", ["ib0", "ibp12s0", "ibs85f0", "ib0.8001"])
def test_sockets_over_ipoib_are_not_rdma(interface: str) -> None:
    using = "".join(f"{w}NET/Socket : Using [0]{interface}:192.168.11.{i}<0>\n" for i, w in enumerate((A, B)))
    verdict = read_text(TWO + using + edges("NET/Socket/0"))
    assert verdict.verdict is Transport.IPOIB
    reported = verdict.diagnostic("ipoib_not_rdma")
    assert reported is not None and interface in reported.message and "not RDMA" in reported.message
    (pair,) = verdict.communicators[0].pairs
    assert pair.interfaces == (interface,)


def test_ipoib_as_bootstrap_or_oob_interface_says_nothing() -> None:
    noise = f"{A}Bootstrap : Using ib0:10.0.0.1<0>\n{A}NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.1<0>\n"
    noise += f"{A}NET/Socket : Using [0]eth0:10.1.0.1<0>\n{B}NET/Socket : Using [0]eth0:10.1.0.2<0>\n"
    verdict = read_text(TWO + noise + edges("NET/Socket/0"))
    assert verdict.verdict is Transport.TCP
    assert codes(verdict) == set()


def test_interface_from_the_environment_where_nccl_lists_none() -> None:
    env = "".join(f"{w}NCCL_SOCKET_IFNAME set by environment to ib0\n" for w in (A, B))
    assert read_text(TWO + env + edges("NET/Socket/0")).verdict is Transport.IPOIB


def test_sockets_without_interface_line_are_not_called_ethernet() -> None:
    verdict = read_text(TWO + edges("NET/Socket/0"))
    assert verdict.verdict is Transport.TCP
    assert "tcp_interface_unknown" in codes(verdict)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)", "nvidia-peermem"),
        (
            "NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 'mlx5_0' (no module or not supported by GPU)",
            "nvidia-peermem",
        ),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "nvidia-peermem"),
        ("GPU Direct RDMA Disabled for GPU 17000 / HCA 0 (distance 5 > 4)", "distance 5"),
        ("NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 1 (distance 4 >= 2)", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_NET_GDR_LEVEL set by environment to LOC", "NCCL_NET_GDR_LEVEL"),
        ("NCCL_IB_CUDA_SUPPORT set by environment to 0.", "NCCL_IB_CUDA_SUPPORT"),
        ("DMA-BUF is available on GPU device 0", "gives no reason"),  # noise, not proof
        ("NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'", "gives no reason"),  # of sockets, true always
    ],
)
def test_rdma_staged_through_host_memory_and_why(line: str, words: str) -> None:
    verdict = read_text(TWO + f"{A}Using network IB\n{A}{line}\n" + edges("NET/IB/0"))
    assert verdict.verdict is Transport.RDMA
    reported = verdict.diagnostic("rdma_staged")
    assert reported is not None and words in f"{reported.message} -> {reported.remedy}"
    assert verdict.communicators[0].pairs[0].gpudirect is GpuDirect.NONE


def test_gpudirect_on_receive_only() -> None:
    verdict = read_text(TWO + edges("NET/IB/0", back="NET/IB/0/GDRDMA"))
    assert verdict.verdict is Transport.RDMA  # not mixed: every edge is the same
    assert "gdr_receive_only" in codes(verdict)
    assert verdict.communicators[0].pairs[0].gpudirect is GpuDirect.RECEIVE_ONLY
    read = f"{A}NCCL_NET_GDR_READ set by environment to 0.\n"
    reported = read_text(TWO + read + edges("NET/IB/0", back="NET/IB/0/GDRDMA")).diagnostic("gdr_receive_only")
    assert reported is not None and "NCCL_NET_GDR_READ=0 is set" in reported.message


def test_gpudirect_on_send_only() -> None:
    verdict = read_text(TWO + edges("NET/IB/0/GDRDMA(PCI)", back="NET/IB/0"))
    assert (verdict.verdict, "gdr_send_only" in codes(verdict)) == (Transport.RDMA, True)


def test_ranks_that_differ_are_not_called_one_sided() -> None:
    """Rank 0 receives without GPUDirect, rank 7 sends with it: its GPU is nearer to the NIC."""
    lines = [
        "Ring 00 : 15[41000] -> 0[1b000] [receive] via NET/IB/0",
        "Ring 00 : 7[41000] -> 8[1b000] [send] via NET/IB/0/GDRDMA",
    ]
    verdict = read_text("\n".join(lines) + "\n")
    assert verdict.verdict is Transport.MIXED
    assert "mixed_transports" in codes(verdict) and "gdr_send_only" not in codes(verdict)
    one_edge = [lines[1], "Ring 00 : 7[41000] -> 8[1b000] [receive] via NET/IB/0"]
    assert "gdr_send_only" in codes(read_text("\n".join(one_edge) + "\n"))


def test_one_end_alone_is_said_to_be_one() -> None:
    verdict = read_text(TWO + f"{A}Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n")
    assert verdict.verdict is Transport.RDMA_GDR
    assert "one_side_only" in codes(verdict)


@pytest.mark.parametrize("virtual", ["virbr0", "docker0", "br-1a2b3c", "veth12ab", "cni0"])
def test_sockets_striped_over_virtual_interfaces(virtual: str) -> None:
    using = "".join(f"{w}NET/Socket : Using [0]eth0:10.0.0.1<0> [1]{virtual}:172.17.0.1<0>\n" for w in (A, B))
    verdict = read_text(TWO + using + edges("NET/Socket/0") + edges("NET/Socket/1"))
    assert verdict.verdict is Transport.TCP
    reported = verdict.diagnostic("sockets_on_virtual_interface")
    assert reported is not None and virtual in reported.message and "NCCL_SOCKET_IFNAME" in (reported.remedy or "")
    # A candidate that no edge uses is no reason to warn.
    assert "sockets_on_virtual_interface" not in codes(read_text(TWO + using + edges("NET/Socket/0")))


def test_sockets_on_loopback() -> None:
    using = "".join(f"{w}NET/Socket : Using [0]lo:127.0.0.1<0>\n" for w in (A, B))
    assert "sockets_on_loopback" in codes(read_text(TWO + using + edges("NET/Socket/0")))


def test_ib_disable_0_and_still_no_device() -> None:
    env = f"{A}NCCL_IB_DISABLE set by environment to 0.\n{A}NET/IB : No device found.\n"
    reported = read_text(TWO + env + edges("NET/Socket/0")).diagnostic("ib_no_device")
    assert (
        reported is not None
        and "NCCL_IB_DISABLE=0" in reported.message
        and "/dev/infiniband" in (reported.remedy or "")
    )
    plain = read_text(TWO + f"{A}NET/IB : No device found.\n" + edges("NET/Socket/0")).diagnostic("ib_no_device")
    assert plain is not None and "NCCL_IB_DISABLE=0" not in plain.message


def test_ib_disabled_and_library_missing() -> None:
    off = f"{A}NCCL_IB_DISABLE set by environment to 1.\n"
    assert "ib_disabled" in codes(read_text(TWO + off + edges("NET/Socket/0")))
    missing = "\nalpha:100:200 [0] misc/ibvwrap.cc:252 NCCL WARN Failed to open libibverbs.so[.1]\n"
    assert "no_ib_library" in codes(read_text(TWO + missing + edges("NET/Socket/0")))
    # An RDMA job whose log holds such a line isn't told of sockets.
    assert "ib_disabled" not in codes(read_text(TWO + off + edges("NET/IBext/0/GDRDMA")))


@pytest.mark.parametrize("form", ["Selected Provider is {}", "Selected Provider is {} (found 4 nics)",
                                  "Selected provider is {}, fabric is {} (found 4 nics)"])  # fmt: skip
@pytest.mark.parametrize("name", ["AWS Libfabric", "Libfabric"])
@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("efa", Transport.EFA),
        ("efa-direct", Transport.EFA),
        ("tcp", Transport.TCP),
        ("tcp;ofi_rxm", Transport.TCP),
        ("sockets", Transport.TCP),
        ("cxi", Transport.RDMA_GDR),
        ("shm", Transport.UNKNOWN),
    ],
)
def test_libfabric_is_efa_only_with_the_efa_provider(
    form: str, name: str, provider: str, expected: Transport
) -> None:
    said = "".join(f"{w}NET/OFI {form.format(provider, provider)}\n" for w in (A, B))
    verdict = read_text(TWO + said + edges(f"NET/{name}/0/GDRDMA"))
    assert verdict.verdict is expected
    assert ("efa_provider_not_efa" in codes(verdict)) == (expected is Transport.TCP)
    assert (verdict.reason is not None) == (expected is Transport.UNKNOWN)


def test_a_provider_that_one_process_names_goes_for_all() -> None:
    verdict = read_text(TWO + f"{A}NET/OFI Selected Provider is tcp\n" + edges("NET/AWS Libfabric/0"))
    assert verdict.verdict is Transport.TCP


def test_libfabric_without_provider_line() -> None:
    verdict = read_text(TWO + edges("NET/AWS Libfabric/0"))
    assert verdict.verdict is Transport.EFA
    assert {"efa_provider_unknown", "rdma_staged"} <= codes(verdict)


def test_network_edges_inside_one_host() -> None:
    """Each GPU in its own container that shares the host's name: distinct devices, all called 0 inside."""
    text = (
        start("box:11:21 [0] NCCL INFO ", 0)
        + start("box:12:22 [0] NCCL INFO ", 1, bus_id="65000")
        + "box:11:21 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
        "box:12:22 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
        "box:11:21 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "box:12:22 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
    )
    verdict = read_text(text)
    assert verdict.verdict is Transport.TCP
    assert codes(verdict) == {"net_inside_host"}
    assert [p.where for p in verdict.communicators[0].pairs] == [Where.INSIDE]


def test_one_name_for_several_machines() -> None:
    """The name was blanked before it was pasted: the same device of "one" host twice."""
    text = "".join(
        start(f"HOST:{10 + r}:{20 + r} [{r % 2}] NCCL INFO ", r, 4, r % 2, f"{r % 2 + 1}7000") for r in range(4)
    )
    text += "HOST:11:21 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
    text += "HOST:10:20 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    text += "HOST:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    verdict = read_text(text)
    assert verdict.verdict is Transport.RDMA_GDR
    assert "host_names_not_unique" in codes(verdict)
    assert "net_inside_host" not in codes(verdict)


def test_hosts_by_nccl_hostid() -> None:
    """Emulated hosts: one machine's name, a distinct NCCL_HOSTID for each."""
    text = start("box:100:200 [0] NCCL INFO ", 0) + start("box:101:201 [0] NCCL INFO ", 1, 2, 1, "65000")
    env = "box:100:200 [0] NCCL INFO NCCL_HOSTID set by environment to host0\n"
    env += "box:101:201 [0] NCCL INFO NCCL_HOSTID set by environment to host1\n"
    using = "".join(f"box:10{i}:20{i} [0] NCCL INFO NET/Socket : Using [0]veth0:10.9.0.{i}<0>\n" for i in (0, 1))
    net = edges("NET/Socket/0").replace("alpha", "box").replace("beta:100:200", "box:101:201")
    verdict = read_text(env + text + using + net)
    assert verdict.verdict is Transport.TCP
    assert verdict.communicators[0].hosts == ("host0", "host1")
    assert "net_inside_host" not in codes(verdict)
    assert "hosts_from_hostid" in codes(verdict)


def test_each_communicator_is_reported() -> None:
    """Tensor parallel inside the host, data parallel between hosts, as Megatron-LM makes them."""
    lines = []
    for rank, host in enumerate(("alpha", "alpha", "beta", "beta")):
        gpu = rank % 2
        who = f"{host}:{100 + gpu}:{200 + gpu} [{gpu}] NCCL INFO "
        head = f"cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}7000"
        lines += [
            f"{who}comm 0xa{rank} rank {gpu} nranks 2 {head} commId 0xd{rank // 2} - Init START",
            f"{who}Channel 00/0 : {gpu}[{gpu}] -> {1 - gpu}[{1 - gpu}] via P2P/CUMEM",
            f"{who}comm 0xa{rank} rank {gpu} nranks 2 {head} commId 0xd{rank // 2} - Init COMPLETE",
            f"{who}comm 0xb{rank} rank {rank // 2} nranks 2 {head} commId 0xe{gpu} - Init START",
            f"{who}Channel 00/0 : {rank // 2}[{gpu}] -> {1 - rank // 2}[{gpu}] [send] via NET/IB/0/GDRDMA",
            f"{who}Channel 00/0 : {1 - rank // 2}[{gpu}] -> {rank // 2}[{gpu}] [receive] via NET/IB/0/GDRDMA",
            f"{who}comm 0xb{rank} rank {rank // 2} nranks 2 {head} commId 0xe{gpu} - Init COMPLETE",
        ]
    verdict = read_text("\n".join(lines) + "\n")
    assert verdict.verdict is Transport.RDMA_GDR
    assert {c.id: c.verdict for c in verdict.communicators} == {
        "0xd0": Transport.P2P,
        "0xd1": Transport.P2P,
        "0xe0": Transport.RDMA_GDR,
        "0xe1": Transport.RDMA_GDR,
    }
    assert {c.hosts for c in verdict.communicators if c.id in ("0xd0", "0xd1")} == {("alpha",), ("beta",)}
    assert codes(verdict) == {"communicators_differ"}


def test_mixed_only_where_edges_between_hosts_differ() -> None:
    third = start(A, 0, 3) + start(B, 1, 3) + start("gamma:100:200 [0] NCCL INFO ", 2, 3)
    good = edges("NET/IB/0/GDRDMA")
    staged = (
        "gamma:100:200 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [send] via NET/IB/0\n"
        "gamma:100:200 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[0] [receive] via NET/IB/0\n"
    )
    verdict = read_text(third + good + staged)
    assert verdict.verdict is Transport.MIXED
    assert "mixed_transports" in codes(verdict)
    by_hosts = {p.hosts: p.verdict for p in verdict.communicators[0].pairs}
    assert by_hosts[("alpha", "beta")] is Transport.RDMA_GDR
    assert by_hosts[("alpha", "gamma")] is Transport.RDMA
    # P2P and SHM inside hosts beside RDMA between them: not mixed.
    inside = f"{A}Channel 00/0 : 0[0] -> 0[1] via P2P/IPC\n{B}Channel 00 : 1[0] -> 1[1] via SHM/direct/direct\n"
    assert read_text(third + good + inside).verdict is Transport.RDMA_GDR


def test_send_and_receive_on_another_transport_than_collectives() -> None:
    later = edges("NET/Socket/0").replace("Channel 00/0", "Channel 00/1")
    verdict = read_text(TWO + edges("NET/IB/0/GDRDMA") + later)
    assert verdict.verdict is Transport.MIXED
    assert "sendrecv_differs" in codes(verdict)


def test_nvlink_between_hosts() -> None:
    """A rack-wide NVLink domain: P2P, though the hosts differ."""
    text = TWO + f"{A}Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL\n{B}Channel 00/0 : 1[0] -> 0[0] via P2P/MNNVL\n"
    verdict = read_text(text)
    assert verdict.verdict is Transport.P2P
    assert verdict.communicators[0].pairs[0].where is Where.BETWEEN


def test_in_network_reduction() -> None:
    text = TWO + edges("NET/IB/0/GDRDMA") + f"{A}CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n"
    verdict = read_text(text)
    assert verdict.verdict is Transport.RDMA_GDR
    assert any("COLLNET/SHARP" in p.networks for p in verdict.communicators[0].pairs)


def test_indirect_and_proxy_forms() -> None:
    text = (
        TWO + edges("NET/IB/4(1)/GDRDMA") + f"{A}Channel 00/0 : 0[17000] -> 1[18000] via P2P/indirect/3[1a000]\n"
    )
    assert read_text(text).verdict is Transport.RDMA_GDR


def test_shm_and_its_reason() -> None:
    line = f"{A}Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
    off = read_text(f"{A}NCCL_P2P_DISABLE set by environment to 1.\n" + line).diagnostic("shm_inside_host")
    assert off is not None and "NCCL_P2P_DISABLE=1" in off.message
    acs = read_text(f"{A}P2P is disabled between connected GPUs 0 and 1. You can repress this\n" + line)
    reported = acs.diagnostic("shm_inside_host")
    assert reported is not None and "ACS" in (reported.remedy or "")
    both = read_text(line + f"{A}Channel 00/0 : 0[0] -> 2[2] via P2P/IPC\n")
    assert both.verdict is Transport.SHM  # the slowest edge inside the host
