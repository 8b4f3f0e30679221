"""A transfer of known size between two network namespaces: the monitor's byte totals against what was sent.

Both namespaces are unnamed and hang on processes of this test, so that they vanish with them, whatever happens.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_root

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
PAYLOAD = 64 << 20
DATAGRAMS, DATAGRAM = 20_000, 1200
# What a frame adds as the interface counts it: Ethernet 14, IPv4 20, UDP 8, or TCP 20 + 12 for the time stamps.
UDP_HEADERS, TCP_HEADERS = 14 + 20 + 8, 14 + 20 + 32


def child(role: str) -> None:
    """What each of the two processes does: enters its namespace, waits for its end of the cable, then acts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        raise SystemExit("not root")
    if libc.unshare(CLONE_NEWNET) != 0:
        raise SystemExit(f"unshare: {os.strerror(ctypes.get_errno())}")
    print("there", flush=True)
    sys.stdin.readline()  # the cable is in
    from wirecost.counters import Sampler

    server = role == "b"
    mine = f"10.77.0.{2 if server else 1}"
    sockets = {}
    if server:
        sockets["tcp"] = socket.create_server((mine, 5001))
        sockets["udp"] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sockets["udp"].bind((mine, 5002))
    print("ready", flush=True)
    sys.stdin.readline()
    sampler = Sampler(every_ns=10_000_000)
    sampler.start()
    print("sampling", flush=True)
    sys.stdin.readline()
    if server:
        connection, _ = sockets["tcp"].accept()
        got = 0
        while data := connection.recv(1 << 20):
            got += len(data)
        print(got, flush=True)
    else:
        with socket.create_connection(("10.77.0.2", 5001), timeout=30) as connection:
            block = memoryview(bytes(1 << 20))
            for _ in range(PAYLOAD >> 20):
                connection.sendall(block)
        print(PAYLOAD, flush=True)
    sys.stdin.readline()
    middle = {r.device: (r.rx_bytes, r.tx_bytes) for r in sampler.sample() if r.kind == "ethernet"}
    print(json.dumps(middle), flush=True)
    sys.stdin.readline()
    if not server:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(DATAGRAMS):
            sender.sendto(bytes(DATAGRAM), ("10.77.0.2", 5002))
    print("sent", flush=True)
    sys.stdin.readline()
    sampler.stop()
    print(json.dumps({d.device: (d.rx_bytes, d.tx_bytes) for d in sampler.summary()}), flush=True)


class Host:
    """One of the two processes, driven line by line."""

    def __init__(self, role: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended: {self.process.wait(10)}"
        return line.strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if os.geteuid() != 0:
        pytest.skip("creates network namespaces, which takes root")
    from pyroute2 import IPRoute, NetNS

    pair = Host("a"), Host("b")
    try:
        for host in pair:
            if host.process.stdout is None or host.read() != "there":
                pytest.skip("this kernel or container forbids network namespaces")
        with IPRoute() as ip:
            # Both ends are born inside the namespaces; nothing is ever left in this one.
            with NetNS(f"/proc/{pair[0].process.pid}/ns/net") as inside:
                inside.link(
                    "add", ifname="wc-a", kind="veth", peer={"ifname": "wc-b", "net_ns_pid": pair[1].process.pid}
                )
            assert not ip.link_lookup(ifname="wc-a")
        for number, (host, name) in enumerate(zip(pair, ("wc-a", "wc-b"), strict=True), 1):
            with NetNS(f"/proc/{host.process.pid}/ns/net") as inside:
                (index,) = inside.link_lookup(ifname=name)
                inside.addr("add", index=index, address=f"10.77.0.{number}", prefixlen=24)
                inside.link("set", index=index, state="up")
        yield pair
    finally:
        for host in pair:
            host.process.kill()
            host.process.wait()


def test_totals_of_a_known_transfer(hosts: tuple[Host, Host]) -> None:
    def all_go() -> list[str]:
        for host in hosts:
            host.go()
        return [host.read() for host in hosts]

    assert all_go() == ["ready", "ready"]
    assert all_go() == ["sampling", "sampling"]
    assert all_go() == [str(PAYLOAD), str(PAYLOAD)]
    a, b = (json.loads(line) for line in all_go())
    # TCP over veth: segments are joined up to 64 KiB, so that headers count for little, at most every 1,448 bytes.
    # On a busy machine some are sent twice: how many is TCP's affair, that both ends counted the same is ours.
    sent, received = a["wc-a"][1], b["wc-b"][0]
    assert PAYLOAD <= sent <= PAYLOAD * (1448 + TCP_HEADERS) / 1448
    assert abs(sent - received) <= 4 * TCP_HEADERS
    assert all_go() == ["sent", "sent"]
    a_end, b_end = (json.loads(line) for line in all_go())
    # UDP: every datagram is a frame of known size.
    wire = DATAGRAMS * (DATAGRAM + UDP_HEADERS)
    for sent in (a_end["wc-a"][1] - a["wc-a"][1], b_end["wc-b"][0] - b["wc-b"][0]):
        assert abs(sent - wire) <= 0.01 * wire
    # Nothing of it went over another interface, and the monitor saw those of its own namespace only.
    assert a_end["lo"] == [0, 0]
    assert "wc-b" not in a_end and not {"eth0", "ens3", "wlan0"} & set(a_end)


def test_nothing_is_left(hosts: tuple[Host, Host]) -> None:
    for host in hosts:
        host.process.kill()
        host.process.wait()
    assert not Path("/sys/class/net/wc-a").exists() and not Path("/sys/class/net/wc-b").exists()


if __name__ == "__main__":
    child(sys.argv[1])
