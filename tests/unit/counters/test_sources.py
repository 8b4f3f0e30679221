"""Counter sources over fake trees: units, devices that appear and vanish, files that can't be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirecost.counters.ethernet import EthernetSource
from wirecost.counters.infiniband import InfinibandSource
from wirecost.counters.nvml import ALL_LINKS, NvmlSource, nvml_source
from wirecost.counters.softirq import SoftirqSource


def interface(root: Path, name: str, rx: int, tx: int, speed: str = "10000") -> None:
    directory = root / "sys/class/net" / name
    (directory / "statistics").mkdir(parents=True, exist_ok=True)
    (directory / "statistics/rx_bytes").write_text(f"{rx}\n")
    (directory / "statistics/tx_bytes").write_text(f"{tx}\n")
    for packets in ("rx_packets", "tx_packets"):
        (directory / "statistics" / packets).write_text(f"{packets == 'tx_packets':d}\n")
    (directory / "speed").write_text(speed + "\n")


def port(root: Path, device: str, number: int, rx: int, tx: int, rate: str = "100 Gb/sec (4X EDR)") -> None:
    directory = root / f"sys/class/infiniband/{device}/ports/{number}"
    (directory / "counters").mkdir(parents=True, exist_ok=True)
    (directory / "counters/port_rcv_data").write_text(f"{rx}\n")
    (directory / "counters/port_xmit_data").write_text(f"{tx}\n")
    (directory / "rate").write_text(rate + "\n")


def test_ethernet(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", 1000, 2000)
    interface(tmp_path, "veth1", 5, 6, speed="-1")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    source = EthernetSource(tmp_path)
    first = {r.device: r for r in source.read()}
    assert {n: (r.rx, r.tx, r.unit_bytes, r.link_Bps) for n, r in first.items()} == {
        "eth0": (1000, 2000, 1, 1.25e9),
        "veth1": (5, 6, 1, None),
    }
    assert (first["eth0"].rx_packets, first["eth0"].tx_packets) == (0, 1)
    interface(tmp_path, "eth0", 1500, 2000)
    interface(tmp_path, "eth1", 1, 1)
    shutil.rmtree(tmp_path / "sys/class/net/veth1")
    second = {r.device: (r.rx, r.tx) for r in source.read()}
    assert second == {"eth0": (1500, 2000), "eth1": (1, 1)}
    # The same name again is another device.
    interface(tmp_path, "veth1", 7, 8)
    assert {r.device: r.rx for r in source.read()}["veth1"] == 7
    source.close()


@pytest.mark.parametrize(
    "rate", ["100 Gb/sec (4X EDR)", "25 Gb/sec (1X EDR)", "400 Gb/sec (4X NDR)", "10 Gb/sec (4X)"]
)
def test_infiniband_counts_words_of_four_bytes_whatever_the_lanes(tmp_path: Path, rate: str) -> None:
    port(tmp_path, "mlx5_0", 1, 250, 500, rate)
    (reading,) = InfinibandSource(tmp_path).read()
    assert (reading.device, reading.rx, reading.tx, reading.unit_bytes) == ("mlx5_0/1", 250, 500, 4)
    assert reading.link_Bps == float(rate.split(maxsplit=1)[0]) * 1e9 / 8
    assert (reading.rx_packets, reading.tx_packets) == (None, None)  # an old driver
    for name, count in (("rcv", 7), ("xmit", 8)):
        (tmp_path / f"sys/class/infiniband/mlx5_0/ports/1/counters/port_{name}_packets").write_text(f"{count}\n")
    (reading,) = InfinibandSource(tmp_path).read()
    assert (reading.rx_packets, reading.tx_packets) == (7, 8)


def test_infiniband_ports_that_come_and_go(tmp_path: Path) -> None:
    source = InfinibandSource(tmp_path)
    assert source.read() == []
    port(tmp_path, "mlx5_0", 1, 1, 1)
    port(tmp_path, "mlx5_0", 2, 2, 2)
    port(tmp_path, "mlx5_1", 1, 3, 3)
    assert [r.device for r in source.read()] == ["mlx5_0/1", "mlx5_0/2", "mlx5_1/1"]
    shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0")
    assert [r.device for r in source.read()] == ["mlx5_1/1"]
    source.close()


def test_efa_counts_bytes(tmp_path: Path) -> None:
    counters = tmp_path / "sys/class/infiniband/rdmap16s27/ports/1/hw_counters"
    counters.mkdir(parents=True)
    (counters / "rx_bytes").write_text("10\n")
    (counters / "tx_bytes").write_text("20\n")
    (reading,) = InfinibandSource(tmp_path).read()
    assert (reading.rx, reading.tx, reading.unit_bytes) == (10, 20, 1)


def test_a_machine_with_nothing(tmp_path: Path) -> None:
    assert EthernetSource(tmp_path).read() == []
    assert InfinibandSource(tmp_path).read() == []
    assert SoftirqSource(tmp_path).read() == []


def test_softirq_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()

    def show(cpu0: int, cpu1: int, rx: int) -> None:
        stat = (
            f"cpu  1 1 1 1 1 1 {cpu0 + cpu1} 0 0 0\ncpu0 1 1 1 1 1 1 {cpu0} 0 0 0\ncpu1 1 1 1 1 1 1 {cpu1} 0 0 0\n"
        )
        (tmp_path / "proc/stat").write_text(stat + "intr 5 0 0\nctxt 8\n")
        (tmp_path / "proc/softirqs").write_text(f"   CPU0 CPU1\n  TIMER: 9 9\n NET_TX: 1 1\n NET_RX: {rx} 2\n")

    now = 0
    monkeypatch.setattr("wirecost.counters.softirq.time.monotonic_ns", lambda: now)
    show(100, 50, 10)
    source = SoftirqSource(tmp_path, ticks_per_s=100)
    assert source.read()[0].gauges == ()
    now = 2 * 10**9
    show(250, 60, 5010)
    gauges = dict(source.read()[0].gauges)
    assert gauges == pytest.approx(
        {"softirq_cores": 0.8, "softirq_busiest_core": 0.75, "net_rx_per_s": 2500, "net_tx_per_s": 0}
    )


class FakeNvml:
    """The few calls of pynvml that are used, with two GPUs."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.values = {138: 2048, 139: 1024, 197: 70, 198: 60}
        self.asked: list[tuple[int, int]] = []
        self.unsupported: set[int] = set()
        self.lost = False
        self.open = 0
        self.now_us = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        if self.lost and handle == 1:
            raise self.NVMLError
        self.asked += fields
        self.now_us += 1000
        self.values[198] += 500
        return [
            SimpleNamespace(
                nvmlReturn=3 if field in self.unsupported else 0,
                valueType=3 if field < 190 else 1,
                timestamp=self.now_us,
                value=SimpleNamespace(ullVal=self.values[field], uiVal=self.values[field] % 2**32),
            )
            for field, _ in fields
        ]


def test_nvlink_and_pcie() -> None:
    nvml = FakeNvml()
    nvml.values[198] = 2**32 - 600  # wraps within the reading
    source = NvmlSource(nvml)
    readings = source.read()
    assert [(r.kind, r.device, r.rx, r.tx, r.unit_bytes) for r in readings] == [
        ("nvlink", "gpu0", 1024, 2048, 1024),  # a counter in KiB, not DCGM's rate
        ("nvlink", "gpu1", 1024, 2048, 1024),
        ("pcie", "gpu0", None, None, 1),  # 32 bits: no total
        ("pcie", "gpu1", None, None, 1),
    ]
    # Four calls lie between a GPU's two, each 500 bytes and 1,000 us.
    assert dict(readings[2].gauges) == {"rx_Bps": 500_000.0, "tx_Bps": 0.0}
    assert (138, ALL_LINKS) in nvml.asked
    assert source.pace_ns > 0
    nvml.unsupported = {138, 139}
    assert {r.kind for r in source.read()} == {"pcie"}
    nvml.lost = True
    assert [r.device for r in source.read()] == ["gpu0"]
    source.close()
    assert nvml.open == 0


def test_no_driver_is_no_source() -> None:
    pytest.importorskip("pynvml")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has the driver")
    assert nvml_source() is None
