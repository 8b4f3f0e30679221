"""The doctor over fake machines: each thing that stands in the way is found, with its remedy."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.rdma import write_port
from wirecost.diagnostics import Diagnostic, Severity, area_of
from wirecost.doctor import Diagnosis, Machine, diagnose
from wirecost.doctor.rdma_counters import CountersWatch
from wirecost.ncclog import Transport

GPU_BUS, NIC_BUS = "0000:17:00.0", "0000:18:00.0"


class Tree:
    """Builds a fake /proc, /sys and /dev."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def nic(
        self, name: str, *, up: bool = True, mtu: int = 1500, speed: int = 10000, physical: bool = True
    ) -> None:
        base = f"sys/class/net/{name}"
        self.write(f"{base}/mtu", str(mtu))
        self.write(f"{base}/speed", str(speed))
        self.write(f"{base}/operstate", "up" if up else "down")
        if physical:
            (self.root / base / "device").mkdir()

    def pci(self, bus_id: str, parents: str, **files: str) -> Path:
        """A PCI device under `parents` ("pci0000:16/0000:16:01.0"), linked where sysfs has all of them."""
        real = self.root / "sys/devices" / parents / bus_id
        real.mkdir(parents=True, exist_ok=True)
        link = self.root / "sys/bus/pci/devices" / bus_id
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(real)
        for name, text in files.items():
            (real / name.removesuffix("_")).write_text(text + "\n")
        return real

    def port(
        self,
        device: str,
        *,
        state: str = "4: ACTIVE",
        layer: str = "InfiniBand",
        rate: str = "400 Gb/sec (4X NDR)",
        nodes: bool = True,
        pci: Path | None = None,
        driver: str = "mlx5_core",
    ) -> None:
        base = f"sys/class/infiniband/{device}"
        for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
            self.write(f"{base}/ports/1/{name}", text)
        pci = pci or self.pci(NIC_BUS, "pci0000:16/0000:16:01.0")
        (self.root / base / "device").symlink_to(pci)
        drivers = self.root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        if not (pci / "driver").exists():
            (pci / "driver").symlink_to(drivers)
        if nodes:
            self.write(f"dev/infiniband/uverbs{len(list((self.root / 'sys/class/infiniband').iterdir())) - 1}")

    def gpu(self, *, open_driver: bool = True, parents: str = "pci0000:16/0000:16:01.0") -> None:
        self.write(f"proc/driver/nvidia/gpus/{GPU_BUS}/information", "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: 1")
        flavour = "Open Kernel Module" if open_driver else "Kernel Module"
        self.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {flavour} for x86_64  570.86.15")
        self.write("proc/sys/kernel/osrelease", "5.15.0-100-generic")
        self.write("sys/module/nvidia/version", "570.86.15")
        self.pci(GPU_BUS, parents, numa_node="0")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def look(tree: Tree, **environment: str) -> Diagnosis:
    return diagnose(Machine(tree.root, live=False, environment=environment))


def found(diagnosis: Diagnosis, words: str) -> Diagnostic:
    matching = [f for f in diagnosis.diagnostics if words in f.message]
    assert len(matching) == 1, [f.message for f in diagnosis.diagnostics]
    return matching[0]


def test_a_machine_with_none_of_it(tree: Tree) -> None:
    diagnosis = look(tree)
    assert diagnosis.at_least(Severity.WARNING) == []
    assert diagnosis.choice.between_hosts is Transport.UNKNOWN
    assert {"no GPU", "no physical network", "no InfiniBand"} <= {
        w
        for f in diagnosis.diagnostics
        for w in ("no GPU", "no physical network", "no InfiniBand")
        if w in f.message
    }


def test_every_warning_and_problem_has_a_remedy(tree: Tree) -> None:
    tree.gpu(open_driver=False)
    tree.port("mlx5_0", state="1: DOWN", nodes=False)
    tree.nic("eth0", speed=100_000)
    tree.nic("docker0", physical=False)
    tree.write("sys/kernel/iommu_groups/0/x")
    diagnosis = look(
        tree, NCCL_P2P_DISABLE="1", NCCL_IB_HCA="mlx9", NCCL_SOCKET_IFNAME="none", NCCL_IB_DISABLE="1"
    )
    grave = diagnosis.at_least(Severity.WARNING)
    assert len(grave) >= 7
    assert all(f.remedy for f in grave)
    assert all("\n" not in f.message for f in diagnosis.diagnostics)


def test_a_healthy_node(tree: Tree) -> None:
    tree.gpu()
    tree.port("mlx5_0")
    tree.nic("eth0")
    diagnosis = look(tree)
    assert diagnosis.choice.between_hosts is Transport.RDMA_GDR
    assert diagnosis.at_least(Severity.WARNING) == []
    assert found(diagnosis, "mlx5_0/1: InfiniBand, 400 Gb/s, active").severity is Severity.OK
    assert found(diagnosis, "NVIDIA A100-SXM4-40GB; driver 570.86.15").severity is Severity.OK
    assert found(diagnosis, "1 of 1 GPUs have a NIC on their PCIe switch").severity is Severity.OK


def test_no_way_into_gpu_memory(tree: Tree) -> None:
    tree.gpu(open_driver=False)
    tree.port("mlx5_0")
    diagnosis = look(tree)
    assert diagnosis.choice.between_hosts is Transport.RDMA
    problem = found(diagnosis, "neither a peer-memory module nor DMA-BUF")
    assert problem.severity is Severity.ERROR and "nvidia-peermem" in (problem.remedy or "")
    tree.write("sys/module/nvidia_peermem/version", "1")
    assert look(tree).choice.between_hosts is Transport.RDMA_GDR


def test_dma_buf_needs_the_kernel_too(tree: Tree) -> None:
    tree.gpu()
    tree.port("mlx5_0")
    tree.write("proc/sys/kernel/osrelease", "5.4.0-42-generic")
    assert look(tree).choice.between_hosts is Transport.RDMA


def test_a_container_without_the_device(tree: Tree) -> None:
    tree.port("mlx5_0", nodes=False)
    tree.nic("eth0")
    tree.write(".dockerenv")
    diagnosis = look(tree)
    assert diagnosis.choice.between_hosts is Transport.TCP
    assert "can't be opened" in diagnosis.choice.between_why
    assert "--device=/dev/infiniband" in (found(diagnosis, "uverbs* isn't here").remedy or "")
    assert found(diagnosis, "inside a container (docker)").severity is Severity.INFO


@pytest.mark.parametrize(("layer", "kind"), [("Ethernet", "RoCE"), ("InfiniBand", "InfiniBand")])
def test_port_states(tree: Tree, layer: str, kind: str) -> None:
    tree.port("mlx5_0", state="2: INIT", layer=layer)
    problem = found(look(tree), f"mlx5_0/1: {kind}, 400 Gb/s, not active (INIT)")
    assert problem.severity is Severity.ERROR
    tree.port("mlx5_1", layer=layer, pci=tree.pci("0000:19:00.0", "pci0000:16/0000:16:01.0"))
    assert found(look(tree), "mlx5_0/1").severity is Severity.INFO  # another one works


def test_ports_of_different_speed(tree: Tree) -> None:
    tree.port("mlx5_0")
    tree.port("mlx5_1", rate="100 Gb/sec (4X EDR)", pci=tree.pci("0000:19:00.0", "pci0000:16/0000:16:01.0"))
    assert found(look(tree), "differ in speed (100, 400 Gb/s)").severity is Severity.WARNING


def test_efa(tree: Tree) -> None:
    tree.port("rdmap0s6", layer="Unspecified", rate="100 Gb/sec (4X EDR)", driver="efa")
    diagnosis = look(tree)
    assert diagnosis.choice.between_hosts is Transport.EFA
    found(diagnosis, "rdmap0s6/1: EFA")


def test_a_distant_nic(tree: Tree) -> None:
    tree.gpu(parents="pci0000:80/0000:80:01.0")
    tree.pci(GPU_BUS, "pci0000:80/0000:80:01.0", numa_node="1")
    tree.port("mlx5_0", pci=tree.pci(NIC_BUS, "pci0000:16/0000:16:01.0", numa_node="0"))
    note = found(look(tree), "no NIC on the PCIe switch of GPU 0 (SYS)")
    assert "NCCL_NET_GDR_LEVEL" in (note.remedy or "")


def test_iommu_and_acs(tree: Tree) -> None:
    tree.gpu()
    tree.port("mlx5_0")
    tree.write("sys/kernel/iommu_groups/0/x")
    bridge = tree.pci("0000:16:01.0", "pci0000:16", class_="0x060400")
    config = bytearray(4096)
    # A capability that leads on, then ACS with request redirect.
    struct.pack_into("<I", config, 0x100, (0x148 << 20) | (1 << 16) | 0x0001)
    struct.pack_into("<IHH", config, 0x148, (0 << 20) | (1 << 16) | 0x000D, 0x5F, 0b0001_1101)
    (bridge / "config").write_bytes(bytes(config))
    diagnosis = look(tree)
    assert found(diagnosis, "ACS is on in 1 PCIe bridges (0000:16:01.0").severity is Severity.WARNING
    assert "iommu=pt" in (found(diagnosis, "the IOMMU translates").remedy or "")
    tree.write("proc/cmdline", "root=/dev/sda iommu=pt quiet")
    struct.pack_into("<H", config, 0x148 + 6, 0)
    (bridge / "config").write_bytes(bytes(config))
    messages = " ".join(f.message for f in look(tree).diagnostics)
    assert "IOMMU" not in messages and "ACS" not in messages


def test_a_config_space_that_loops(tree: Tree) -> None:
    tree.gpu()
    tree.port("mlx5_0")
    bridge = tree.pci("0000:16:01.0", "pci0000:16", class_="0x060400")
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, (0x100 << 20) | 0x0001)
    (bridge / "config").write_bytes(bytes(config))
    findings = look(tree).diagnostics
    assert findings
    assert all("ACS" not in f.message for f in findings)


def test_mtu(tree: Tree) -> None:
    tree.nic("ens1", speed=100_000, mtu=1500)
    tree.nic("ens2", speed=100_000, mtu=9000)
    tree.nic("ens3", speed=1_000, mtu=1500)
    tree.nic("ib0", speed=100_000, mtu=2044)
    diagnosis = look(tree)
    warned = {f.message.split()[0].rstrip(":") for f in diagnosis.diagnostics if f.severity is Severity.WARNING}
    assert warned == {"ens1", "ib0"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, Transport.IPOIB),
        ("eth", Transport.TCP),
        ("=ib0", Transport.IPOIB),
        ("^ib,docker,lo", Transport.TCP),
        ("none", Transport.UNKNOWN),
    ],
)
def test_which_interface_sockets_would_take(tree: Tree, asked: str | None, expected: Transport) -> None:
    tree.nic("eth0")
    tree.nic("ib0", mtu=4092)
    tree.nic("docker0", physical=False)
    tree.nic("lo", physical=False)
    diagnosis = look(tree, **({"NCCL_SOCKET_IFNAME": asked} if asked else {}))
    assert diagnosis.choice.between_hosts is expected
    refused = [f for f in diagnosis.diagnostics if "matches no interface" in f.message]
    assert bool(refused) == (asked == "none")


def test_virtual_interfaces_beside_a_real_one(tree: Tree) -> None:
    tree.nic("ens1")
    tree.nic("br-12ab", physical=False)
    warning = found(look(tree), "stripe over br-12ab")
    assert warning.remedy == "export NCCL_SOCKET_IFNAME==ens1"


def test_members_of_a_bond_are_no_candidates(tree: Tree) -> None:
    tree.nic("ens1")
    tree.write("sys/class/net/ens1/master/x")
    tree.nic("bond0", physical=False)
    assert look(tree).choice.between_why.endswith("sockets over bond0")


@pytest.mark.parametrize(
    ("variables", "expected", "words"),
    [
        ({"NCCL_IB_DISABLE": "1"}, Transport.TCP, "NCCL_IB_DISABLE=1 switches off RDMA"),
        ({"NCCL_NET": "Socket"}, Transport.TCP, None),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, Transport.RDMA, None),
        ({"NCCL_IB_HCA": "=mlx5_7"}, Transport.RDMA_GDR, "excludes all of this machine's RDMA devices"),
        ({"NCCL_IB_HCA": "mlx5"}, Transport.RDMA_GDR, None),
    ],
)
def test_environment(tree: Tree, variables: dict[str, str], expected: Transport, words: str | None) -> None:
    tree.gpu()
    tree.port("mlx5_0")
    tree.nic("eth0")
    diagnosis = look(tree, **variables)
    assert diagnosis.choice.between_hosts is expected
    grave = [f.message for f in diagnosis.at_least(Severity.WARNING)]
    assert len(grave) == (words is not None)
    assert words is None or words in grave[0]


class FakeNvml:
    """A machine of GPUs with these active links and peers."""

    class NVMLError(Exception):
        pass

    def __init__(self, links: list[int], peers: set[tuple[int, int]], width: int = 16) -> None:
        self.links, self.peers, self.width = links, peers, width

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return len(self.links)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if not any(self.links):
            raise self.NVMLError
        return int(link < self.links[handle])

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, _: int) -> int:
        return 0 if (a, b) in self.peers else 5

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:1{handle}:00.0".encode())

    def nvmlDeviceGetCurrPcieLinkGeneration(self, _: int) -> int:
        return 5

    nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration

    def nvmlDeviceGetCurrPcieLinkWidth(self, _: int) -> int:
        return self.width

    def nvmlDeviceGetMaxPcieLinkWidth(self, _: int) -> int:
        return 16


BOTH = {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("nvml", "inside", "words"),
    [
        (FakeNvml([18, 18], BOTH), Transport.P2P, None),
        (FakeNvml([18, 16], BOTH), Transport.P2P, "same number of active NVLinks"),
        (FakeNvml([0, 0], BOTH), Transport.P2P, None),
        (FakeNvml([0, 0], {(0, 1)}), Transport.SHM, "no peer access between GPUs 1->0"),
        (FakeNvml([18, 18], BOTH, width=8), Transport.P2P, "x8 of x16"),
        (FakeNvml([18], set()), None, None),
    ],
)
def test_gpus_and_their_links(tree: Tree, nvml: FakeNvml, inside: Transport | None, words: str | None) -> None:
    diagnosis = diagnose(Machine(tree.root, live=False, environment={}, nvml=nvml))
    assert diagnosis.choice.inside_host is inside
    grave = {f.message for f in diagnosis.at_least(Severity.WARNING)}
    assert bool(grave) == (words is not None)
    assert words is None or all(words in message for message in grave)


def test_driver_without_gpus(tree: Tree) -> None:
    tree.write("dev/nvidiactl")
    assert found(look(tree), "no GPU is visible").severity is Severity.ERROR


def test_kernels_without_network_namespaces(tree: Tree) -> None:
    tree.write("proc/sys/user/max_net_namespaces", "0")
    assert found(look(tree), "no network namespaces").severity is Severity.WARNING


def test_json(tree: Tree) -> None:
    tree.gpu()
    answer = look(tree).as_json()
    assert set(answer) == {"schema_version", "transport", "diagnostics", "findings"}
    assert {"code", "severity", "message", "remedy", "area"} == set(answer["diagnostics"][0])
    assert {"area", "level", "message", "remedy"} == set(answer["findings"][0])


def test_this_machine_alive() -> None:
    """Whatever this machine is: an answer, and nothing left behind."""
    before = set(Path("/sys/class/net").iterdir())
    diagnosis = diagnose()
    assert diagnosis.diagnostics
    assert any(area_of(f.code) == "emulation" for f in diagnosis.diagnostics)
    assert set(Path("/sys/class/net").iterdir()) == before


def test_counted_errors_are_notes_and_new_ones_warnings(tmp_path: Path) -> None:
    write_port(tmp_path, out_of_sequence=12, np_cnp_sent=3, symbol_error=0)
    watch = CountersWatch(Machine(root=tmp_path, live=False))
    write_port(tmp_path, out_of_sequence=15, np_cnp_sent=3, symbol_error=0)
    found = {(f.severity, f.subject): f for f in watch.probe()}
    assert set(found) == {(Severity.WARNING, "mlx5_0/1"), (Severity.INFO, "mlx5_0/1")}
    assert "out_of_sequence 3" in found[Severity.WARNING, "mlx5_0/1"].message
    notes = [f.message for f in diagnose(Machine(root=tmp_path, live=False, environment={})).diagnostics]
    assert any("since the driver was loaded: out_of_sequence 15" in message for message in notes)
    assert not any("symbol_error" in message for message in notes)
