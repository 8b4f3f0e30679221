"""Emulated hosts in real namespaces: shaped, measured, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.studies import processes_about
from wirecost.launch.isolate import Isolated

pytestmark = pytest.mark.needs_root

MEASURE = """\
import sys
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.probe import measure_links
from wirecost.spec import Emulation
rate = sys.argv[2]
with EmulatedHosts(int(sys.argv[1]), Emulation(rate=rate) if rate != "none" else Emulation()) as hosts:
    print(measure_links(hosts).model_dump_json())
"""


def isolated(code: str, *arguments: str, tmp_path: Path) -> str:
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        Isolated([sys.executable, "-c", code, *arguments], network=True, output=output) as run,
    ):
        code_ = run.wait(120)
    assert code_ == 0, log.read_text()
    return log.read_text()


@pytest.mark.parametrize(("hosts", "rate", "bps"), [("2", "200 Mb/s", 200e6), ("3", "50 Mb/s", 50e6)])
def test_links_are_shaped_in_both_directions(hosts: str, rate: str, bps: float, tmp_path: Path) -> None:
    measured = json.loads(isolated(MEASURE, hosts, rate, tmp_path=tmp_path))
    assert measured["nominal_rate_bps"] == bps
    assert len(measured["rates_bps"]) == int(hosts)
    # A busy machine may measure less; more than the cap is a shaper that does not shape.
    assert all(0 < got < 1.02 * bps for got in measured["rates_bps"])
    assert measured["round_trip_ns"] > 0


def test_many_to_one_shares_the_receivers_link_and_the_switch_counts_it(tmp_path: Path) -> None:
    """Three senders of 100 Mb/s each into one host: its own link caps what arrives. What the switch's ports count is
    to the byte what the hosts' own interfaces say over netlink."""
    code = """\
import multiprocessing, socket, time
from pyroute2 import IPRoute
from wirecost.counters.ethernet import SwitchSource
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.spec import Emulation
context = multiprocessing.get_context("fork")
with EmulatedHosts(4, Emulation(rate="100 Mb/s")) as hosts:
    def send(host):
        hosts.enter(host)
        with socket.create_connection((hosts.address(0), 9), timeout=20) as s:
            s.sendall(bytes(3_000_000))
    with hosts.inside(0):
        listener = socket.create_server(("0.0.0.0", 9))
    senders = [context.Process(target=send, args=(h,)) for h in (1, 2, 3)]
    start = time.perf_counter()
    [s.start() for s in senders]
    connections = [listener.accept()[0] for _ in senders]
    total = 0
    for c in connections:
        while got := len(c.recv(1 << 20)):
            total += got
    print(total, total * 8 / (time.perf_counter() - start))
    [s.join() for s in senders]
    with hosts.at_switch() as ports:
        source = SwitchSource(ports)
    def at_the_switch():
        return {r.device: (r.rx, r.tx, r.rx_packets, r.tx_packets) for r in source.read()}
    def at_the_hosts():
        found = {}
        for host in range(4):
            with hosts.inside(host), IPRoute() as ip:
                (link,) = ip.get_links(ifname="eth0")
                stats = link.get("stats64")
                found[f"host{host}"] = tuple(stats[n] for n in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"))
        return found
    while True:  # the kernel's own neighbour discovery may come in between
        before, own, after = at_the_switch(), at_the_hosts(), at_the_switch()
        if before == after:
            break
    print(own == after, own["host0"][0])
"""
    total, rate, same, received = isolated(code, tmp_path=tmp_path).split()
    assert int(total) == 9_000_000
    assert float(rate) < 105e6
    assert same == "True"
    assert 9_000_000 < int(received) < 1.03 * 9_000_000


def test_without_root(tmp_path: Path) -> None:
    """As nobody, in a user namespace; skipped where the kernel forbids those."""
    code = f"""\
import os, sys
sys.argv = ["-c", "2", "200 Mb/s"]
import wirecost.emulation.hosts, wirecost.emulation.probe, multiprocessing.synchronize, multiprocessing.heap
import multiprocessing.popen_fork, multiprocessing.resource_tracker, encodings.idna
from pyroute2 import IPRoute
IPRoute().close()
from wirecost.errors import UnsupportedError
from wirecost.emulation.kernel import enter_isolation
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
import ctypes
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: dropping root took /proc/self away from us
try:
    enter_isolation()
except UnsupportedError as error:
    print("refused:", error)
    sys.exit(0)
if os.fork() == 0:
    exec({MEASURE!r})
    os._exit(0) if sys.stdout.flush() is None else None
os.wait()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    if run.stdout.startswith("refused:"):
        pytest.skip(f"needs_root: {run.stdout.strip()}")
    assert run.stdout, run.stderr
    assert json.loads(run.stdout)["nominal_rate_bps"] == 200e6


def test_a_rate_that_the_shaper_cannot_count_is_refused(tmp_path: Path) -> None:
    code = """\
from wirecost.errors import UnsupportedError
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.spec import Emulation
try:
    EmulatedHosts(2, Emulation(rate="100 Gb/s"))
except UnsupportedError as error:
    print(error)
"""
    assert "can't be shaped to 100 Gb/s" in isolated(code, tmp_path=tmp_path)


def test_everything_dies_with_the_caller(tmp_path: Path) -> None:
    """SIGKILL of the process that holds the lifeline kills a grandchild that ignores every signal it can."""
    marker = tmp_path / "started"
    stubborn = (
        "import os, signal, time, pathlib\n"
        "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]\n"
        "os.setsid()\n"
        f"pathlib.Path({str(marker)!r}).touch()\n"
        "time.sleep(600)\n"
    )
    caller = (
        "import sys, time\n"
        "from wirecost.launch.isolate import Isolated\n"
        f"inner = [sys.executable, '-c', {stubborn!r}]\n"
        "outer = [sys.executable, '-c', f'import subprocess, time; subprocess.Popen({inner!r}); time.sleep(600)']\n"
        "with open('/dev/null', 'wb') as null, Isolated(outer, network=True, output=null):\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", caller])
    try:
        deadline = time.monotonic() + 60
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert processes_about(marker)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 30
    while left := processes_about(marker):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_processes_see_their_own_proc(tmp_path: Path) -> None:
    """CUDA finds itself through /proc by its process id."""
    code = "import os; print(os.getpid(), os.readlink('/proc/self'))"
    inner, shown = isolated(code, tmp_path=tmp_path).split()
    assert inner == shown


def test_every_host_has_a_name_of_its_own(tmp_path: Path) -> None:
    code = """\
import os, socket, sys
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.spec import Emulation
with EmulatedHosts(2, Emulation()) as hosts:
    for host in (0, 1):
        if os.fork() == 0:
            hosts.enter(host)
            print(socket.gethostname(), flush=True)
            os._exit(0)
        os.wait()
print(socket.gethostname())
"""
    assert isolated(code, tmp_path=tmp_path).split() == ["host0", "host1", socket.gethostname()]


def test_hosts_use_one_congestion_control_and_count_their_segments(tmp_path: Path) -> None:
    code = """\
import socket
from pathlib import Path
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.segments import read_segments_of_hosts
from wirecost.emulation.tcp import PREFERRED
from wirecost.spec import Emulation
with EmulatedHosts(2, Emulation(rate="1 Gb/s")) as hosts:
    before = read_segments_of_hosts(hosts)
    for host in (0, 1):
        with hosts.inside(host):
            control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
            print(control == hosts.congestion_control and control in PREFERRED)
    with hosts.inside(1):
        listening = socket.create_server((hosts.address(1), 0))
    with hosts.inside(0):
        sending = socket.create_connection(listening.getsockname()[:2])
    receiving, _ = listening.accept()
    sending.sendall(bytes(100_000))
    while receiving.recv(1 << 20, socket.MSG_PEEK) == b"":
        pass
    segments = read_segments_of_hosts(hosts).since(before)
    print(segments.sent >= 2, segments.retransmitted)
"""
    assert isolated(code, tmp_path=tmp_path).split() == ["True", "True", "True", "0"]


def test_what_passes_a_shaper_keeps_its_order(tmp_path: Path) -> None:
    code = """\
import os, sys
from pathlib import Path
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.emulation.kernel import CLONE_NEWNS, mount_own_sys, unshare
from wirecost.emulation.steering import cores_mask
from wirecost.spec import Emulation
def masks(hosts, host):
    sys.stdout.flush()
    if os.fork() == 0:
        with hosts.inside(host):
            unshare(CLONE_NEWNS)
            mount_own_sys()
            for queue in sorted(Path("/sys/class/net").glob("eth0/queues/rx-*/rps_cpus")):
                print(int(queue.read_text().replace(",", ""), 16))
            sys.stdout.flush()
        os._exit(0)
    os.wait()
from wirecost.emulation import hosts as built
built.FEW_CORES = 0
with EmulatedHosts(2, Emulation(rate="1 Gb/s")) as hosts:
    print(hosts.in_order, int(cores_mask(os.cpu_count()).replace(",", ""), 16))
    masks(hosts, 0)
    before = Path("/proc/self/mountinfo").read_text()
for cores, emulation in ((0, Emulation()), (os.cpu_count(), Emulation(rate="1 Gb/s"))):
    built.FEW_CORES = cores
    with EmulatedHosts(2, emulation) as hosts:
        print(hosts.in_order)
        masks(hosts, 0)
    print(before == Path("/proc/self/mountinfo").read_text())
"""
    steered, mask, *found = isolated(code, tmp_path=tmp_path).split()
    if steered == "False" and os.geteuid() != 0:
        pytest.skip("the kernel lets only root itself steer packets")
    assert steered == "True"
    assert found == [mask, *2 * ["None", "0", "True"]]
