"""The logs that went wrong before, with their right values (they lie beside the checkout)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import SHARED
from wirecost.ncclog import GpuDirect, Transport, Verdict, Where, not_as_asked, read_logs

pytestmark = pytest.mark.needs_shared
CASES = SHARED / "cases" / "transport"
INPUTS = sorted(CASES.glob("*/input.log"))


def read(name: str) -> Verdict:
    (folder,) = CASES.glob(f"{name}-*")
    return read_logs([folder / "input.log"])


def pairs(verdict: Verdict, where: Where = Where.BETWEEN) -> dict[tuple[str | None, str | None], Transport]:
    return {p.hosts: p.verdict for c in verdict.communicators for p in c.pairs if p.where is where}


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: p.parent.name)
def test_case(path: Path) -> None:
    name, right = path.parent.name, (path.parent / "right.txt").read_text()
    verdict = read_logs([path])
    if "rdma-gdr n1 - n2, 2/2 ranks, GPUDirect both, 2 edges" in right:
        assert verdict.verdict is Transport.RDMA_GDR
        (communicator,) = verdict.communicators
        (pair,) = communicator.pairs
        assert (communicator.ranks_seen, communicator.nranks) == (2, 2)
        assert (pair.hosts, pair.gpudirect, pair.edges) == (("n1", "n2"), GpuDirect.BOTH, 2)
    elif "tcp between n1 - n2 (and p2p inside)" in right:
        assert verdict.verdict is Transport.TCP
        assert pairs(verdict) == {("n1", "n2"): Transport.TCP}
        assert set(pairs(verdict, Where.INSIDE).values()) == {Transport.P2P}
    elif "whatever the plugin runs on" in right and verdict.verdict is Transport.UNKNOWN:
        assert verdict.reason is not None and "depends on the plugin" in verdict.reason
    else:
        assert name[:2] in {n[:2] for n in EXPECTED}
    assert verdict.communicators


EXPECTED = {
    "03b": Transport.RDMA_GDR,
    "04": Transport.MIXED,
    "05b": Transport.RDMA,
    "06x-plugin-IBext_v11": Transport.RDMA,
    "06x-plugin-gIB": Transport.RDMA,
    "07": Transport.UNKNOWN,
    "08": Transport.MIXED,
    "09": Transport.TCP,
    "12b": Transport.P2P,
    "13": Transport.TCP,
    "15": Transport.RDMA,
    "18": Transport.P2P,
    "19": Transport.RDMA_GDR,
    "21": Transport.MIXED,
    "23": Transport.IPOIB,
    "27a": Transport.RDMA_GDR,
    "27c": Transport.UNKNOWN,
    "28": Transport.RDMA,
    "29": Transport.TCP,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_verdict(name: str) -> None:
    (path,) = [p for p in INPUTS if p.parent.name == name or p.parent.name.startswith(f"{name}-")]
    assert read_logs([path]).verdict is EXPECTED[name]


@pytest.mark.parametrize("log", ["input.log", "control-splitCount.log"])
def test_split_communicators_are_paired_by_color(log: str) -> None:
    (folder,) = CASES.glob("04-*")
    verdict = read_logs([folder / log])
    assert pairs(verdict) == {("a1", "c1"): Transport.RDMA_GDR, ("b1", "d1"): Transport.TCP}


def test_what_each_case_warns_of() -> None:
    for name, code, words in (
        ("05b", "gdr_receive_only", "receiving only"),
        ("07", "connection_failed", "status=12"),
        ("08", "ib_device_not_opened", "erdma_1 on gb"),
        ("08", "gdr_differs_by_nic", "on ga NIC 1"),
        ("09", "ib_disabled", "NCCL_NET=Socket"),
        ("12b", "peer_hosts_not_in_log", "hosts are not known"),
        ("13", "net_inside_host", "NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1"),
        ("15", "gdr_receive_only", "receiving only"),
        ("19", "in_network_reduction", "SHARP"),
        ("21", "several_attempts", "rdma-gdr in the last"),
        ("27a", "one_side_only", "sending end"),
    ):
        reported = read(name).diagnostic(code)
        assert reported is not None and words in f"{reported.message} -> {reported.remedy}", (name, code)


def test_a_failed_connection_is_not_what_was_asked_for() -> None:
    verdict = read("07")
    assert (
        verdict.reason is not None and "NET/IBext_v8 with GPUDirect was set up and then failed" in verdict.reason
    )
    assert not_as_asked(verdict, "rdma-gdr") is not None
    assert [p.failed for c in verdict.communicators for p in c.pairs] == [True]


def test_hosts_of_the_cases() -> None:
    assert pairs(read("12b"), Where.PRESUMED) == {(None, "gb-01"): Transport.P2P}
    assert pairs(read("15")) == {("n1", "n2"): Transport.RDMA}
    assert pairs(read("18"), Where.INSIDE) == {("node7", "node7"): Transport.P2P}
    assert pairs(read("29")) == {("nodea", "nodeb"): Transport.TCP}
    assert {c.nodes for c in read("27a").communicators} == {2}
