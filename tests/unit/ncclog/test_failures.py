"""Connections that were set up and failed prove no use; what a log doesn't tell is judged by its edges."""

from __future__ import annotations

import pytest

from wirecost.ncclog import Transport, Verdict, Where, not_as_asked, read_text

A, B = "alpha:100:200 [0] NCCL INFO ", "beta:300:400 [0] NCCL INFO "


def init(who: str, rank: int, state: str, comm_id: str = "0xc1", nranks: int = 2) -> str:
    return (
        f"{who}ncclCommInitRank comm 0xa{rank} rank {rank} nranks {nranks} cudaDev 0 nvmlDev 0 busId 17000 "
        f"commId {comm_id} - Init {state}\n"
    )


def job(net: str = "NET/IB/0/GDRDMA", who: tuple[str, str] = (A, B), comm_id: str = "0xc1") -> str:
    a, b = who
    return (
        init(a, 0, "START", comm_id)
        + init(b, 1, "START", comm_id)
        + f"{a}Channel 00/0 : 1[0] -> 0[0] [receive] via {net}\n{a}Channel 00/0 : 0[0] -> 1[0] [send] via {net}\n"
        f"{b}Channel 00/0 : 0[0] -> 1[0] [receive] via {net}\n{b}Channel 00/0 : 1[0] -> 0[0] [send] via {net}\n"
    )


def up(who: tuple[str, str] = (A, B), comm_id: str = "0xc1") -> str:
    return init(who[0], 0, "COMPLETE", comm_id) + init(who[1], 1, "COMPLETE", comm_id)


WARN = "beta:300:401 [0] {} NCCL WARN {}\n"
RDMA_FAILURES = {
    "2.4": WARN.format(
        "transport/net_ib.cc:789", "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"
    ),
    "2.18": WARN.format(
        "transport/net_ib.cc:1295",
        "NET/IB : Got completion from peer 10.0.0.1<4> with error 12, opcode 32753, len 0, vendor err 129 (Send)",
    ),
    "2.27": WARN.format(
        "transport/net_ib.cc:2458",
        "NET/IB: Got completion from peer 10.0.0.1<4> with status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_0",
    ),
    "modify-qp": WARN.format(
        "misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with error Connection timed out errno 110"
    ),
    "modify-qp-2.28": WARN.format(
        "misc/ibvwrap.cc:376 (wrap_ibv_modify_qp)",
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, curr state INIT, next state RTR",
    ),
    "register": WARN.format(
        "misc/ibvwrap.cc:230", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory errno 12"
    ),
    "blanked": "host-01:XXXX [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out\n",
    "trail": f"{B}transport/net.cc:683 -> 2\n{B}init.cc:1263 -> 2\n",
    "trail-with-function": f"{B}init.cc:1558 (initTransportsRank) -> 2\n",
    "trail-of-rccl": f"{B}/data/build/hipify/src/transport.cc:164 -> 3\n",
    "proxy": WARN.format(
        "proxy.cc:1524", "[Proxy Service 1] Failed to execute operation Connect from rank 1, retcode 3"
    ),
    "abort-before-complete": "beta:300:300 [0] NCCL INFO comm 0xa1 rank 1 nranks 2 cudaDev 0 busId 17000 - Abort COMPLETE\n",
    "watchdog": (
        "[rank1]:[E321 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600060 milliseconds\n"
    ),
    "watchdog-nothing-completed": (
        "[rank1]:[E1 ProcessGroupNCCL.cpp:1785] [PG ID 0 Rank 1] Exception (either an error or timeout) detected by "
        "watchdog at work: 1, last enqueued NCCL work: 1, last completed NCCL work: -1.\n"
    ),
    "raised": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, "
        "NCCL version 2.21.5\n"
    ),
}


@pytest.mark.parametrize("name", RDMA_FAILURES)
def test_a_connection_that_failed_is_no_proof(name: str) -> None:
    verdict = read_text(job() + RDMA_FAILURES[name])
    assert verdict.verdict is Transport.UNKNOWN
    assert verdict.reason is not None and "NET/IB with GPUDirect was set up and then failed" in verdict.reason
    assert verdict.diagnostic("connection_failed") is not None
    assert not_as_asked(verdict, "rdma-gdr") is not None
    (communicator,) = verdict.communicators
    (pair,) = communicator.pairs
    assert (communicator.verdict, pair.verdict, pair.failed) == (Transport.UNKNOWN, Transport.RDMA_GDR, True)


QUIET = {
    "nothing": "",
    "retried": f"{B}Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, retrying 1/34 after 100 msec\n",
    "port": WARN.format("transport/net_ib.cc:90", "NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)"),
    "end-of-job": (
        f"{B}[Service thread] Connection closed by localRank 0\n{B}misc/socket.cc:47 -> 3\n{B}misc/socket.cc:773 -> 3\n"
        f"{B}proxy.cc:1377 -> 3\n{B}transport/net.cc:1094 -> 3\n"
        "beta:300:300 [0] NCCL INFO comm 0xa1 rank 1 nranks 2 cudaDev 0 busId 17000 - Abort COMPLETE\n"
        "beta:300:300 [0] NCCL INFO comm 0xa1 rank 1 nranks 2 cudaDev 0 busId 17000 - Destroy COMPLETE\n"
    ),
    "device-not-opened": WARN.format("misc/ibvwrap.cc:77", "NET/IB : Unable to open device mlx5_9"),
    "sockets-failed": WARN.format(
        "misc/socket.cc:550", "socketStartConnect: Connect to 10.0.0.1<43> failed : Software error"
    ),
    "other-watchdog": "the watchdog of the data loader barked\n",
    "gdr-probe": f"{B}plugin/net.cc:456 -> 2\n",
    "numa": WARN.format(
        "/x/src/init.cc:115", 'NUMA auto balancing enabled. Disable by "sudo sysctl kernel.numa_balancing=0"'
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_failure_of_the_connection(name: str) -> None:
    verdict = read_text(job() + up() + QUIET[name])
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.diagnostic("connection_failed") is None


@pytest.mark.parametrize(
    "line",
    [
        RDMA_FAILURES["watchdog"].replace("SeqNum=1,", "SeqNum=6463,"),
        RDMA_FAILURES["watchdog-nothing-completed"].replace("work: -1", "work: 6462"),
        RDMA_FAILURES["2.27"] + "[rank0] NCCL Work update periodically: last completed NCCL work: 120.\n",
    ],
)
def test_a_failure_after_collectives_were_completed_says_what_was_in_use(line: str) -> None:
    verdict = read_text(job() + up() + line)
    assert verdict.verdict is Transport.RDMA_GDR
    reported = verdict.diagnostic("failed_later")
    assert reported is not None and "until then" in reported.message


def test_status_numbers_are_explained() -> None:
    verdict = read_text(job() + RDMA_FAILURES["2.27"])
    assert verdict.reason is not None
    assert "status=12, transport retries exceeded" in verdict.reason and "on beta" in verdict.reason


def test_rdma_that_failed_takes_nothing_from_sockets() -> None:
    verdict = read_text(job("NET/Socket/0") + RDMA_FAILURES["2.27"])
    assert verdict.verdict is Transport.TCP
    assert verdict.diagnostic("failure_elsewhere") is not None


def test_sockets_that_failed() -> None:
    verdict = read_text(job("NET/Socket/0") + QUIET["sockets-failed"])
    assert verdict.verdict is Transport.UNKNOWN


AGAIN = ("alpha:101:201 [0] NCCL INFO ", "beta:301:401 [0] NCCL INFO ")


def test_the_last_attempt_counts_where_an_earlier_one_failed() -> None:
    verdict = read_text(
        job() + RDMA_FAILURES["modify-qp"] + job("NET/Socket/0", AGAIN, "0xc2") + up(AGAIN, "0xc2")
    )
    assert verdict.verdict is Transport.TCP
    for code in ("several_attempts", "connection_failed"):
        assert verdict.diagnostic(code) is not None
    # And a watchdog's line, which names no process, concerns those before it.
    verdict = read_text(job() + RDMA_FAILURES["watchdog"] + job("NET/Socket/0", AGAIN, "0xc2") + up(AGAIN, "0xc2"))
    assert verdict.verdict is Transport.TCP


def test_the_last_attempt_failed() -> None:
    verdict = read_text(
        job("NET/Socket/0")
        + up()
        + job(who=AGAIN, comm_id="0xc2")
        + RDMA_FAILURES["2.27"].replace(":300:", ":301:")
    )
    assert verdict.verdict is Transport.UNKNOWN


def test_a_second_communicator_is_no_second_attempt() -> None:
    verdict = read_text(job() + up() + job(comm_id="0xc9") + up(comm_id="0xc9"))
    assert verdict.diagnostic("several_attempts") is None


@pytest.mark.parametrize(
    ("versions", "warned"),
    [
        (["2.21.5+cuda12.4", "2.21.5+cuda12.4"], False),
        (["2.21.5", "2.21.5+cuda12.4"], False),
        (["2.21.5+cuda12.4", "2.20.5+cuda12.4"], True),
        (["2.21.5+cuda12.4", "2.21.5+cuda12.1"], True),
    ],
)
def test_two_versions_in_one_job(versions: list[str], warned: bool) -> None:
    lines = "".join(f"{who}NCCL version {v}\n" for who, v in zip((A, B), versions, strict=True))
    verdict = read_text(lines + job())
    assert verdict.verdict is Transport.RDMA_GDR
    assert (verdict.diagnostic("versions_differ") is not None) == warned


INSIDE = f"{A}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def unknown_because(verdict: Verdict, words: str) -> bool:
    reason = verdict.reason or ""
    return verdict.verdict is Transport.UNKNOWN and reason.startswith("unknown because ") and words in reason


@pytest.mark.parametrize(
    "line",
    [
        f"{A}Channel 01/0 : 7[7] -> 8[0] [send] via NET/\n",
        f"{A}Channel 01/0 : 7[7] -> 8[0] [rec\n",
        f"{A}Channel 01/0 : 7[7] -> 8[0] [send] via NE\n",
        f"{A}Channel 01/0 : 7[7] -> 8[0] [send] via NET/I\x01B/0\n",
        f"{A}CollNet 01/0 : 7 [send] via COLLNET/SHARP\n",
        f"{A}Channel 01/0 : 7[7] -> ?[0] [send] via NET/IB/0\n",
    ],
)
def test_a_line_of_a_network_that_cant_be_read_never_leaves_p2p(line: str) -> None:
    assert unknown_because(read_text(INSIDE + line), "can't be read")
    assert unknown_because(read_text(INSIDE.replace("P2P/CUMEM", "SHM/direct/direct") + line), "can't be read")


def test_more_nodes_than_edges_explain() -> None:
    nodes = f"{A}comm 0xa0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
    assert unknown_because(read_text(init(A, 0, "START", nranks=16) + nodes + INSIDE), "2 nodes")
    # By the hosts of its ranks, where NCCL's count isn't in the log.
    other = init(A, 1, "START", nranks=3).replace(
        "cudaDev 0 nvmlDev 0 busId 17000", "cudaDev 1 nvmlDev 1 busId 27000"
    )
    three = init(A, 0, "START", nranks=3) + other + init(B, 2, "START", nranks=3)
    assert unknown_because(read_text(three + INSIDE), "2 nodes")
    # A second communicator whose connections the log doesn't show.
    tensor_parallel = init(A, 0, "START") + INSIDE
    world = init(A, 0, "START", "0xee", nranks=4).replace("0xa0", "0xb0") + nodes.replace("0xa0", "0xb0")
    assert unknown_because(read_text(tensor_parallel + world), "none of its connections")


def test_one_node_of_several_names_is_one() -> None:
    """Pods that share a node: peer access joins them."""
    log = (
        init(A, 0, "START")
        + init(B, 1, "START")
        + INSIDE
        + INSIDE.replace(A, B).replace("0[0] -> 1[1]", "1[1] -> 0[0]")
    )
    verdict = read_text(log)
    assert verdict.verdict is Transport.P2P
    one_node = f"{A}comm 0xa0 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
    assert read_text(init(A, 0, "START") + init(B, 1, "START") + one_node + INSIDE).verdict is Transport.P2P


def test_network_edges_that_can_be_read_decide_beside_one_that_cant() -> None:
    verdict = read_text(job() + f"{A}Channel 01/0 : 0[0] -> 1[0] [send] via NET/\n")
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.diagnostic("network_lines_unread") is not None


def test_a_torn_line_is_mended_with_its_rest() -> None:
    torn = f"{A}Channel 00/0 : 0[0] -> 1[0] [sen{B}Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\nd] via NET/IB/0\n"
    verdict = read_text(torn + init(A, 0, "START") + init(B, 1, "START"))
    assert verdict.verdict is Transport.RDMA
    assert verdict.diagnostic("gdr_receive_only") is not None
    assert [p.hosts for c in verdict.communicators for p in c.pairs] == [("alpha", "beta")]


def test_mnnvl_edge_to_a_gpu_that_is_taken_leaves_the_host() -> None:
    start = (
        init(A, 0, "START", nranks=4) + f"{A}comm 0xa0 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 1\n"
    )
    verdict = read_text(start + f"{A}Channel 00/0 : 0[0] -> 2[0] via P2P/MNNVL\n")
    assert verdict.verdict is Transport.P2P
    assert [p.where for p in verdict.communicators[0].pairs] == [Where.PRESUMED]
    verdict = read_text(start + f"{A}Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL\n")
    assert [p.where for p in verdict.communicators[0].pairs] == [Where.INSIDE]


@pytest.mark.parametrize("words", ["Failed to open libibverbs.so[.1]", "Count not open libibverbs.so.1"])
def test_no_libibverbs(words: str) -> None:
    verdict = read_text(f"{A}{words}\n" + job("NET/Socket/0"))
    assert verdict.diagnostic("no_ib_library") is not None


def test_one_missing_name_of_libibverbs_is_no_missing_library() -> None:
    verdict = read_text(f"{A}Count not open libibverbs.so\n" + job("NET/Socket/0"))
    assert verdict.diagnostic("no_ib_library") is None


@pytest.mark.parametrize("name", ["IBP", "PSM2", "Spectrum-X", "XLIO", "Warp_v3"])
def test_plugins_of_unknown_carrier(name: str) -> None:
    assert unknown_because(read_text(job(f"NET/{name}/0")), "depends on the plugin")
    # GPUDirect RDMA proves RDMA whatever the plugin is called.
    assert read_text(job(f"NET/{name}/0/GDRDMA")).verdict is Transport.RDMA_GDR


@pytest.mark.parametrize("name", ["IB-ROCM", "IB-CAST", "IBext_v11", "gIB", "IB"])
def test_plugins_of_known_carrier(name: str) -> None:
    assert read_text(job(f"NET/{name}/0")).verdict is Transport.RDMA


@pytest.mark.parametrize("flush", ["Always", "None", "C2c", "Unknown", "Later"])
def test_flush_of_receiving_ends(flush: str) -> None:
    assert (
        read_text(job("NET/IB/0/GDRDMA").replace("GDRDMA", f"GDRDMA(PCI)/flush={flush}")).verdict
        is Transport.RDMA_GDR
    )
    receive_only = job("NET/IB/0").replace(
        "[receive] via NET/IB/0", f"[receive] via NET/IB/0/GDRDMA/flush={flush}"
    )
    assert read_text(receive_only).diagnostic("gdr_receive_only") is not None


def test_net_name_reset_to_sockets() -> None:
    verdict = read_text(f"{A}Comm config netName reset to NCCL_NET=Socket\n" + job("NET/Socket/0"))
    reported = verdict.diagnostic("ib_disabled")
    assert reported is not None and "NCCL_NET=Socket" in reported.message
