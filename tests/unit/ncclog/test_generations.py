"""The line forms of every NCCL generation and of RCCL, with and without what launchers put before them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

import pytest

from wirecost.ncclog import GpuDirect, Transport, Where, read_text

VERSIONS = [
    "2.4.8",
    "2.6.4",
    "2.7.8",
    "2.10.3",
    "2.12.12",
    "2.16.2",
    "2.18.5",
    "2.21.5",
    "2.23.4",
    "2.26.2",
    "2.28.9",
]
VERSIONS += ["2.30.7", "rccl-2.18.3", "rccl-2.20.5"]
GPUS = 2  # a host


def minor(version: str) -> int:
    return int(version.removeprefix("rccl-").split(".")[1])


def edge_line(version: str, channel: int, a: int, b: int, via: str, side: str = "", connection: int = 0) -> str:
    """A connection line as this version's format string prints it."""
    m, rccl = minor(version), version.startswith("rccl")
    word = "Ring" if m < 7 else "Channel"
    index = f"/{connection}" if m >= 12 else ""

    def end(rank: int) -> str:
        if m < 5 and side:
            return str(rank)
        device = rank % GPUS
        if m >= 18 and not rccl:
            return f"{rank}[{device}]"
        return f"{rank}[{device}]" if m < 5 else f"{rank}[{device + 1:x}7000]"

    if via == "shm":
        via = "direct shared memory" if m < 13 else "SHM/direct/direct" if m < 29 else "SHM/direct"
        if m >= 13:
            index = ""
    if via == "p2p":
        via = "P2P/IPC" if m < 18 or rccl else "P2P/CUMEM/read"
    if via.endswith("/GDRDMA") and m >= 26 and channel % 2:
        via += "(PCI)"
    suffix = f" comm 0x7f00aa{b if side == 'receive' else a:02x} nRanks 04" if rccl else ""
    return f"{word} {channel:02d}{index} : {end(a)} -> {end(b)}{f' [{side}]' if side else ''} via {via}{suffix}"


def init_line(version: str, rank: int, state: str) -> str:
    m, device = minor(version), rank % GPUS
    pointer = f"0x7f00aa{rank:02x}"
    who = "" if m < 18 else "ncclCommInitRank " if m >= 19 or version.startswith("rccl") else ""
    if m >= 30 and state == "START":
        who = f"[Rank {rank}] ncclCommInitRankConfig "
    nvml = f" nvmlDev {device}" if m < 5 or m >= 18 else ""
    bus = "" if m < 5 else f" busId {device + 1:x}7000"
    comm_id = " commId 0x9e3779b97f4a7c15" if m >= 18 else ""
    extra = " localSize 368 used 96 bytes on core 3" if version.startswith("rccl") and state == "COMPLETE" else ""
    return f"{who}comm {pointer} rank {rank} nranks 4 cudaDev {device}{nvml}{bus}{comm_id}{extra} - Init {state}"


def job(version: str, net: str = "NET/IB/0/GDRDMA", inside: str = "p2p", lazy: bool = False) -> list[str]:
    """Two hosts of two GPUs: ranks 0, 1 on alpha, 2, 3 on beta, a ring of two channels."""
    per_rank: list[list[str]] = []
    for rank in range(4):
        host, device = ("alpha", "beta")[rank // GPUS], rank % GPUS
        who = f"{host}:{100 + device}:{200 + device} [{device}] NCCL INFO "
        edges = []
        for channel in range(2):
            edges.append(f"Channel {channel:02d}/02 :    0   1   2   3")
            edges.append(f"Ring {channel:02d} : {(rank - 1) % 4} -> {rank} -> {(rank + 1) % 4}")
            if device == 0:
                edges.append(edge_line(version, channel, (rank - 1) % 4, rank, net, "receive"))
                edges.append(edge_line(version, channel, rank, rank + 1, inside))
            else:
                edges.append(edge_line(version, channel, rank, (rank + 1) % 4, net, "send"))
        start = [init_line(version, rank, "START")] if minor(version) >= 17 else []
        done = [init_line(version, rank, "COMPLETE")]
        lines = start + done + edges if lazy else start + edges + done
        name = "RCCL" if version.startswith("rccl") else "NCCL"
        plain = f"{name} version {version.removeprefix('rccl-')}+cuda12.4"
        per_rank.append([plain if rank == 0 else "", *(who + line for line in lines)])
    return interleave(per_rank)


def interleave(per_rank: list[list[str]]) -> list[str]:
    """Lines of several processes as they come out of one terminal: each in its own order."""
    queues = [list(lines) for lines in per_rank]
    draw, merged = random.Random(7), []
    while any(queues):
        queue = draw.choice([q for q in queues if q])
        merged.append(queue.pop(0))
    return merged


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("net", "expected"),
    [
        ("NET/IB/0/GDRDMA", Transport.RDMA_GDR),
        ("NET/IB/0", Transport.RDMA),
        ("NET/IBext_v8/3/GDRDMA/Shared", Transport.RDMA_GDR),
        ("NET/Socket/0", Transport.TCP),
        ("NET/FastSocket/1", Transport.TCP),
        ("NET/AWS Libfabric/2/GDRDMA", Transport.EFA),
        ("NET/GPUDirectTCPX_v7/0/GDRDMA", Transport.TCP),
    ],
)
def test_transport_between_hosts(version: str, net: str, expected: Transport) -> None:
    verdict = read_text("\n".join(job(version, net)) + "\n")
    assert verdict.verdict is expected
    (communicator,) = verdict.communicators
    assert (communicator.nranks, communicator.ranks_seen) == (4, 4)
    assert communicator.hosts == ("alpha", "beta")
    assert {(p.hosts, p.where) for p in communicator.pairs} == {
        (("alpha", "alpha"), Where.INSIDE),
        (("beta", "beta"), Where.INSIDE),
        (("alpha", "beta"), Where.BETWEEN),
    }
    between = next(p for p in communicator.pairs if p.where is Where.BETWEEN)
    assert between.edges == 2
    assert between.networks == ("/".join(net.split("/")[:2]),)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("inside", "expected"), [("p2p", Transport.P2P), ("shm", Transport.SHM)])
def test_transport_inside_one_host(version: str, inside: str, expected: Transport) -> None:
    lines = [line for line in job(version, inside=inside) if "NET/" not in line and "beta" not in line]
    verdict = read_text("\n".join(lines) + "\n")
    assert verdict.verdict is expected
    assert [p.hosts for p in verdict.communicators[0].pairs] == [("alpha", "alpha")]
    assert (verdict.diagnostic("shm_inside_host") is not None) == (inside == "shm")


@pytest.mark.parametrize("version", ["2.23.4", "2.28.9", "2.30.7"])
def test_connections_made_after_init(version: str) -> None:
    """From 2.22 connections are made at the first collective, after Init COMPLETE."""
    verdict = read_text("\n".join(job(version, lazy=True)) + "\n")
    assert verdict.verdict is Transport.RDMA_GDR
    assert [c.id for c in verdict.communicators] == ["0x9e3779b97f4a7c15"]


def test_several_communicators_connected_after_init() -> None:
    """Each makes every connection once: the second time that a process prints one, it is the newer communicator's.
    Send and receive connections (/1) could be either's."""
    lines = []
    for rank in range(2):
        who = f"alpha:{10 + rank}:{20 + rank} [{rank}] NCCL INFO "
        head = f"rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank + 1}7000"
        edges = [f"{who}Channel 0{c}/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/CUMEM" for c in range(2)]
        for comm, identity in (("0xa0", "commId 0x77"), ("0xa1", "parent 0xa0 splitCount 1 color 5 key 0")):
            name = "ncclCommSplit" if "parent" in identity else "ncclCommInitRankConfig"
            lines += [
                f"{who}{name} comm {comm}{rank} {head} {identity} - Init {word}" for word in ("START", "COMPLETE")
            ]
            lines += [line.replace("0xa0 ", f"0xa0{rank} ") for line in edges]
        lines.append(f"{who}Channel 00/1 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/CUMEM")
    verdict = read_text("\n".join(line.replace("parent 0xa0 ", "parent 0xa00 ") for line in lines) + "\n")
    assert verdict.verdict is Transport.P2P
    first = verdict.communicators[0]
    assert (first.id, first.ranks_seen, [p.edges for p in first.pairs]) == ("0x77", 2, [2])
    assert all(c.verdict is Transport.P2P for c in verdict.communicators)
    assert verdict.communicators[-1].id is None
    assert verdict.diagnostic("edges_without_communicator") is not None


def _colour(line: str) -> str:
    return f"\x1b[32m{line}\x1b[0m"


PREFIXES: dict[str, Callable[[int, str], str]] = {
    "mpirun": lambda i, line: f"[1,{i % 4}]<stdout>:{line}",
    "mpirun-stderr": lambda i, line: f"[1,{i % 4}]<stderr>: {line}",
    "torchrun": lambda i, line: f"[rank{i % 4}]:{line}",
    "torchrun-spaced": lambda i, line: f"[rank{i % 4}]: {line}",
    "default": lambda i, line: f"[default{i % 4}]:{line}",
    "srun": lambda i, line: f"{i % 4}: {line}",
    "kubernetes": lambda i, line: f"2025-03-04T05:06:{i % 60:02d}.123456789Z {line}",
    "kubernetes-pod": lambda i, line: f"[pod/trainer-{i % 4}/main] 2025-03-04T05:06:07Z {line}",
    "compose": lambda i, line: f"trainer-{i % 4}  | {line}",
    "ray": lambda i, line: f"(RayTrainWorker pid={i % 4}, ip=10.0.0.{i % 4}) {line}",
    "nccl-timestamp": lambda i, line: f"[2025-03-04 05:06:{i % 60:02d}] {line}",
    "colour": lambda i, line: _colour(line),
    "docker-json": lambda i, line: (
        f'{{"log":"{line}\\n","stream":"stdout","time":"2025-03-04T05:06:{i % 60:02d}Z"}}'
    ),
    "syslog": lambda i, line: f"Mar  4 05:06:{i % 60:02d} alpha train[77]: {line}",
    "windows": lambda i, line: line + "\r",
    "noise": lambda i, line: f"step {i}: loss 2.3 via the usual path\n{line}",
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("version", ["2.4.8", "2.12.12", "2.28.9", "rccl-2.20.5"])
def test_launcher_prefixes(prefix: str, version: str) -> None:
    plain = read_text("\n".join(job(version)) + "\n")
    lines = [PREFIXES[prefix](i, line) if line else line for i, line in enumerate(job(version))]
    verdict = read_text("\n".join(lines) + "\n")
    assert verdict.communicators == plain.communicators
    assert verdict.diagnostics == plain.diagnostics
    assert verdict.nccl_versions == plain.nccl_versions


@pytest.mark.parametrize("version", VERSIONS)
def test_pasted_without_prefix(version: str) -> None:
    """Ranks can't be placed on hosts: the transport is known, and what isn't is said."""
    pairs = 0
    for start in ("[0] NCCL INFO ", "NCCL INFO ", ""):
        lines = [line.split("NCCL INFO ")[-1] for line in job(version, "NET/IB/0") if "NCCL INFO" in line]
        verdict = read_text("\n".join(start + line for line in lines) + "\n")
        assert verdict.verdict is Transport.RDMA
        assert all(c.hosts == () for c in verdict.communicators)
        assert verdict.diagnostic("hosts_unknown") is not None
        net = [p for c in verdict.communicators for p in c.pairs if p.networks == ("NET/IB",)]
        pairs += len(net)
        assert net and all(p.hosts == (None, None) and p.where is Where.PRESUMED for p in net)
    assert pairs >= 3


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_chunks_cut_anywhere(size: int) -> None:
    from wirecost.ncclog import LogReader

    data = ("\n".join(job("2.21.5")) + "\n").encode()
    reader = LogReader()
    for i in range(0, len(data), size):
        reader.feed(data[i : i + size])
    assert reader.verdict() == read_text(data)


def test_one_file_a_rank_in_a_directory(tmp_path) -> None:
    from wirecost.ncclog import read_logs

    for rank in range(4):
        host = ("alpha", "beta")[rank // 2]
        lines = [line for line in job("2.28.9") if line.startswith(f"{host}:{100 + rank % 2}:")]
        data = ("\n".join(lines) + "\n").encode()
        folder = tmp_path / host
        folder.mkdir(exist_ok=True)
        if rank % 2:
            (folder / f"nccl.{rank}.log.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"nccl.{rank}.log").write_bytes(data)
    (tmp_path / "model.pt").write_bytes(b"\0\1\2" * 1000)
    verdict = read_logs([tmp_path])
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.communicators[0].ranks_seen == 4
    skipped = verdict.diagnostic("files_skipped")
    assert skipped is not None and "model.pt" in skipped.message
    between = next(p for p in verdict.communicators[0].pairs if p.where is Where.BETWEEN)
    assert between.gpudirect is GpuDirect.BOTH
