"""A table's bandwidth beside what the links give, and the usual cause where it is far below."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from support.rdma import write_port
from wirecost.collectives.expectation import LinkShare, compare_with_links, place_of
from wirecost.collectives.hardware import Hardware, of_cluster, of_gpu_name, of_this_machine
from wirecost.collectives.readers.base import row
from wirecost.collectives.result import Row
from wirecost.collectives.table import share_lines
from wirecost.doctor.machine import Machine
from wirecost.spec import load_spec

GB = 1e9
DGX = of_cluster(load_spec("cluster", "dgx-h100"), "cluster dgx-h100")


def rows(
    busbw_GBps: float,
    ranks: int = 16,
    *,
    collective: str = "all_reduce",
    largest: int = 1 << 30,
    sizes: int = 4,
    flat: bool = True,
) -> list[Row]:
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks}.get(collective, 1.0)
    if collective == "all_to_all":
        factor = (ranks - 1) / ranks
    made = []
    for k in range(sizes):
        size = largest >> (sizes - 1 - k)
        share = 1.0 if flat else 0.5 ** (sizes - 1 - k)
        made.append(
            row(collective, size_bytes=size, ranks=ranks, time_us=factor * size / (share * busbw_GBps * 1e3))
        )
    return made


def compared(*args: object, **options: object) -> LinkShare:
    share = compare_with_links(*args, **options)  # type: ignore[arg-type]
    assert share is not None
    return share


def test_two_nodes_that_do_as_they_should() -> None:
    share = compared(rows(470), DGX, hosts=2)
    assert (share.links_Bps, share.algorithm, share.cause) == (400 * GB, "NVLSTree", None)
    assert share.share == pytest.approx(1.175) and share.expected_share == pytest.approx(1.02, abs=0.01)
    lines = list(share_lines(share))
    assert "118 % of the 400 GB/s that 8 x infiniband-ndr give each node" in lines[0]
    assert "more than 100 %" in lines[1] and len(lines) == 2


def test_one_node() -> None:
    share = compared(rows(360, 8, collective="all_gather"), DGX, hosts=1)
    assert (share.links, share.share, share.expected_share) == (
        "NVLink 4 gives each GPU",
        pytest.approx(0.8),
        pytest.approx(1.0),
    )
    assert share.cause is None


@pytest.mark.parametrize(
    ("busbw_GBps", "hosts", "cause"),
    [
        (49.0, 2, "as much as 1 of 8 NICs gives"),
        (196.0, 2, "as much as 4 of 8 NICs give"),
        (8.0, 2, "as much as sockets give"),
        (270.0, 2, "RDMA without GPUDirect"),
        (20.0, 1, "peer access is off"),
    ],
)
def test_usual_causes(busbw_GBps: float, hosts: int, cause: str) -> None:
    share = compared(rows(busbw_GBps, 8 * hosts), DGX, hosts=hosts)
    assert share.cause is not None and share.cause.startswith(cause)
    assert any("far below; the usual cause" in line for line in share_lines(share))


def test_small_messages_explain_a_bandwidth_that_still_rises() -> None:
    share = compared(rows(100, largest=1 << 20, flat=False), DGX, hosts=2)
    assert share.cause is not None and "the largest message is 1 MiB" in share.cause
    flat = compared(rows(8, largest=1 << 26), DGX, hosts=2)
    assert flat.cause is not None and "sockets" in flat.cause


def test_groups_share_the_nics_of_the_hosts_that_they_span() -> None:
    across = compared(rows(49, 2), DGX, hosts=2, groups=8, span=2)
    assert (across.links_Bps, across.share) == (50 * GB, pytest.approx(0.98))
    inside = compared(rows(49, 8), DGX, hosts=2, groups=2, span=1)
    assert inside.links == "NVLink 4 gives each GPU"
    unclear = compared(rows(49, 4), DGX, hosts=4, groups=4)
    assert unclear.share is None and unclear.unknown is not None and "hosts" in unclear.unknown


def test_fewer_gpus_than_a_node_has_use_the_nics_near_them() -> None:
    share = compared(rows(98, 4), DGX, hosts=2)
    assert share.links_Bps == 100 * GB and "2 x infiniband-ndr" in str(share.links)


def test_all_to_all_crosses_the_nics_with_every_ranks_data() -> None:
    share = compared(rows(50, 16, collective="all_to_all"), DGX, hosts=2)
    assert share.links_Bps == pytest.approx(400 * GB / (8 * 8 / 15))


def test_hosts_follow_from_the_nodes_where_nothing_tells_them() -> None:
    share = compared(rows(470), DGX)
    assert share.source == "cluster dgx-h100; 2 nodes of 8 GPUs assumed"


def test_what_is_not_known_is_said() -> None:
    for share in (compared(rows(100), None, hosts=2), compared(rows(100), of_gpu_name("NVIDIA H200"), hosts=2)):
        assert share.share is None and share.unknown is not None and "--hardware" in share.unknown
        assert "--hardware" in next(share_lines(share))
    assert compare_with_links([], DGX) is None
    assert compare_with_links([row("barrier", size_bytes=0, ranks=4, time_us=1.0)], DGX) is None


def test_an_emulated_link_has_no_cause() -> None:
    emulated = Hardware("emulated", nics_per_node=1, nic_Bps=1 * GB, between="the emulated link", emulated=True)
    share = compared(rows(0.2, 2), emulated, hosts=2)
    assert share.share == pytest.approx(0.2) and share.cause is None


def test_place() -> None:
    place = place_of(2, 8, 2, 2, None)
    assert place is not None and (place.hosts, place.sharing, place.per_host) == (2, 8, 1)
    assert place_of(2, 1, None, None, None) is None


@pytest.mark.parametrize(
    ("name", "rate_GBps"),
    [
        ("NVIDIA H100 80GB HBM3", 450),
        ("NVIDIA A100-SXM4-80GB", 300),
        ("A100-SXM4-40GB", 300),
        ("Tesla V100-SXM2-32GB", 150),
        ("NVIDIA H200", 450),
        ("NVIDIA B200", 900),
        ("AMD Instinct MI300X", 448),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA L40S", None),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_gpus_by_name(name: str | None, rate_GBps: float | None) -> None:
    hardware = of_gpu_name(name)
    assert (hardware.gpu_Bps if hardware is not None else None) == (rate_GBps and rate_GBps * GB)


class Nvml:
    """Two GPUs of a name, with as many NVLinks up."""

    NVMLError = RuntimeError

    def __init__(self, name: str, links: int) -> None:
        self._name, self._links = name, links

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return self._name

    def nvmlDeviceGetNvLinkState(self, _: int, link: int) -> int:
        return int(link < self._links)

    def nvmlDeviceGetP2PStatus(self, *_: int) -> int:
        return 0

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:1{handle}:00.0")

    def nvmlDeviceGetCurrPcieLinkGeneration(self, _: int) -> int:
        return 4

    nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration

    def nvmlDeviceGetCurrPcieLinkWidth(self, _: int) -> int:
        return 16

    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth


@pytest.mark.parametrize(
    ("name", "links", "inside", "rate_GBps"),
    [
        ("NVIDIA H200", 18, "18 NVLinks", 450),
        ("NVIDIA H200", 9, "9 NVLinks", 225),
        ("NVIDIA B200", 18, "18 NVLinks", 900),
        ("NVIDIA RTX A6000", 4, "", None),  # a bridge's links are slower
        ("NVIDIA L40S", 0, "PCIe 4 x16", 31.504),
    ],
)
def test_gpus_of_this_machine(tmp_path: Path, name: str, links: int, inside: str, rate_GBps: float | None) -> None:
    hardware = of_this_machine(Machine(tmp_path, live=False, environment={}, nvml=Nvml(name, links)))
    assert (hardware.inside, hardware.gpus_per_node) == (inside, 2)
    assert hardware.gpu_Bps == (None if rate_GBps is None else pytest.approx(rate_GBps * GB))


def test_nics_of_this_machine(tmp_path: Path) -> None:
    for name, rate in (("mlx5_0/1", "400 Gb/sec (4X NDR)"), ("mlx5_1/1", "200 Gb/sec (4X HDR)")):
        write_port(tmp_path, name, rate=rate)
    hardware = of_this_machine(Machine(tmp_path, live=False, environment={}))
    assert (hardware.nics_per_node, hardware.nic_Bps, hardware.gpu_Bps) == (2, 25 * GB, None)
