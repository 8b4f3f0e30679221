"""A thousand mutated logs of each kind: unrelated lines change nothing, and nothing crashes or hangs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirecost.ncclog import LogReader, Transport, read_text

MUTATIONS = 1000  # of each kind of log
WHO = ("alpha:100:200 [0] NCCL INFO ", "alpha:101:201 [1] NCCL INFO ", "beta:300:400 [0] NCCL INFO ")


def _job(net: str, *, nodes: int | None = None) -> list[str]:
    """Ranks 0 and 1 on alpha, 2 on beta."""
    lines = ["NCCL version 2.27.3+cuda12.4"]
    for rank, who in enumerate(WHO):
        head = f"{who}ncclCommInitRank comm 0xa{rank} rank {rank} nranks 3 cudaDev {rank % 2} nvmlDev {rank % 2} busId "
        lines += [
            f"{who}NET/Socket : Using [0]eth0:10.0.0.{rank}<0>",
            f"{head}{rank % 2 + 1}7000 commId 0xc1 - Init START",
        ]
        if nodes:
            lines.append(
                f"{who}comm 0xa{rank} rank {rank} nRanks 3 nNodes {nodes} localRanks 2 localRank {rank % 2} MNNVL 0"
            )
    lines += [
        f"{WHO[0]}Channel 00/0 : 2[0] -> 0[0] [receive] via {net}",
        f"{WHO[0]}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        f"{WHO[1]}Channel 00/0 : 1[1] -> 2[0] [send] via {net}",
        f"{WHO[2]}Channel 00/0 : 1[1] -> 2[0] [receive] via {net}",
        f"{WHO[2]}Channel 00/0 : 2[0] -> 0[0] [send] via {net}",
    ]
    return lines


FAILED = "beta:300:401 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<4> with status=12"
KINDS = {
    "rdma-gdr": (_job("NET/IB/0/GDRDMA"), Transport.RDMA_GDR),
    "rdma": (_job("NET/IB/0"), Transport.RDMA),
    "tcp": (_job("NET/Socket/0"), Transport.TCP),
    "efa": (_job("NET/AWS Libfabric/0/GDRDMA"), Transport.EFA),
    "failed": ([*_job("NET/IB/0/GDRDMA"), FAILED], Transport.UNKNOWN),
    "unread": ([line for line in _job("NET/", nodes=2) if "->" not in line or "P2P" in line], Transport.UNKNOWN),
    "inside": ([line for line in _job("NET/IB/0") if "NET/IB" not in line and "beta" not in line], Transport.P2P),
}
UNRELATED = [
    "",
    "step 12 loss 2.345 lr 3e-4 grad norm 0.32",
    "iteration 500/ 1000 | consumed samples: 12800 | elapsed time per iteration (ms): 1234.5 | via the usual path",
    "100%|##########| 500/500 [00:12<00:00, 41.2it/s]\r",
    '{"time": "2026-01-01T00:00:00Z", "level": "info", "message": "epoch 3 done"}',
    "\x1b[32mINFO\x1b[0m checkpoint saved to /mnt/ckpt/step-500",
    "[rank0]: UserWarning: The given NumPy array is not writable",
    "WARNING:torch.distributed.run: Setting OMP_NUM_THREADS environment variable for each process to be 1",
    "vLLM is using nccl==2.21.5",
    f"{WHO[0]}Channel 00/02 :    0   1   2",
    f"{WHO[0]}Ring 00 : 2 -> 0 -> 1",
    f"{WHO[1]}Trees [0] -1/-1/-1->1->0 [1] 0/-1/-1->1->-1",
    f"{WHO[1]}Setting affinity for GPU 1 to ffff,ffffffff",
    f"{WHO[2]}Connected all rings, use ring PXN 0 GDR 1",
    f"{WHO[2]}NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
    f"{WHO[0]}threadThresholds 8/8/64 | 16/8/64 | 512 | 512",
    f"{WHO[0]}AllReduce: opCount 1f sendbuff 0x7f4 recvbuff 0x7f4 count 26214400 datatype 9 op 0 root 0 comm 0xa0",
    f"{WHO[0]}Bootstrap: Using ib0:10.1.0.1<0>",
    "alpha:100:200 [0] /build/src/init.cc:115 NCCL WARN NUMA auto balancing enabled",
    "gamma:9:9 [0] NCCL INFO DMA-BUF is available on GPU device 0",
    "       65536         16384     float     sum      -1    20.66    3.17    5.55      0    20.66    3.17    5.55      0",
    "\x00\x01\x02 not text \ufffd",
]


def _judged(lines: list[str]) -> tuple[object, ...]:
    verdict = read_text("\n".join(lines) + "\n")
    return verdict.verdict, verdict.communicators, verdict.reason, {w.code for w in verdict.diagnostics}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_what_they_are_called(kind: str) -> None:
    lines, expected = KINDS[kind]
    assert read_text("\n".join(lines)).verdict is expected


@pytest.mark.parametrize("kind", KINDS)
def test_unrelated_lines_change_nothing(kind: str) -> None:
    """Lines are added anywhere, and others of those left out again."""
    lines, expected = KINDS[kind]
    plain = _judged(lines)
    assert plain[0] is expected
    for seed in range(MUTATIONS):
        draw = random.Random(seed)
        mutated = list(lines)
        for _ in range(draw.randint(1, 12)):
            mutated.insert(draw.randrange(len(mutated) + 1), draw.choice(UNRELATED))
        assert _judged(mutated) == plain, seed


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    chosen=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(UNRELATED)), max_size=12),
)
def test_unrelated_lines_change_nothing_wherever_they_are(kind: str, chosen: list[tuple[int, str]]) -> None:
    lines, _ = KINDS[kind]
    mutated = list(lines)
    for at, line in sorted(chosen, reverse=True):
        mutated.insert(at, line)
    assert _judged(mutated) == _judged(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_gives_an_answer_or_a_reason(kind: str) -> None:
    """Bytes changed, cut, doubled and moved; handed over in pieces of any size."""
    whole = "\n".join(KINDS[kind][0]).encode()
    for seed in range(MUTATIONS):
        draw = random.Random(seed)
        data = bytearray(whole)
        for _ in range(draw.randint(1, 12)):
            a, b = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
            match draw.randrange(4):
                case 0 if b > a:
                    data[a] = draw.randrange(256)
                case 1:
                    del data[a : min(b, a + 40)]
                case 2:
                    data[a:a] = data[a : min(b, a + 200)]
                case _:
                    data[a:a] = draw.choice(
                        (b"\n", b'"', b"{", b"\\n", b" NCCL INFO ", b"\xff\xfe", b"\0", b"\x1b[")
                    )
        reader = LogReader()
        size = draw.randint(1, 4000) if seed % 4 else len(data)
        for at in range(0, len(data), max(size, 100)):
            reader.feed(bytes(data[at : at + max(size, 100)]))
        verdict = reader.verdict()
        assert (verdict.verdict is Transport.UNKNOWN) == (verdict.reason is not None), seed
        assert all("\n" not in w.message for w in verdict.diagnostics), seed


@settings(max_examples=200, deadline=None)
@given(keep=st.sets(st.integers(0, 40)))
def test_lost_lines_never_turn_a_network_into_peer_access(keep: set[int]) -> None:
    """Whatever part of a job's lines is left: NCCL's count of nodes, where it is there, forbids `p2p`."""
    lines = [line for k, line in enumerate(_job("NET/Socket/0", nodes=2)) if k in keep]
    verdict = read_text("\n".join(lines) + "\n")
    if any(c.nodes == 2 for c in verdict.communicators):
        assert verdict.verdict in (Transport.TCP, Transport.UNKNOWN)
    assert verdict.verdict in (Transport.TCP, Transport.P2P, Transport.UNKNOWN)
