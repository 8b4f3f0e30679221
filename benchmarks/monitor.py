"""Measures the CPU time of `wirecost monitor` at 10 Hz with 16 ports.

    python benchmarks/monitor.py [--seconds 20] [--every-ms 100] [--ports 16]

Makes a fake /sys of Ethernet and InfiniBand ports, samples it for a while in a fresh process with its rows going
to JSON lines, and prints the CPU time that the process took for it as a share of one core. Beside it the same for
the plain way of reading (open, read, close each file, json.dumps), and ours on this machine's real /sys and /proc,
which shows what a real kernel adds. Target: under 1 % of one core.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirecost.counters import CounterSource, Sampler

EVENTS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent",
    "np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_remote_access_errors",
    "req_remote_invalid_request", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err",
    "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart_cnps", "rp_cnp_handled", "rx_icrc_encapsulated",
)  # fmt: skip
"""Of those that a ConnectX port counts, the ones that are read."""


def make_tree(root: Path, ports: int) -> None:
    for i in range(ports):
        net = root / f"sys/class/net/eth{i}"
        (net / "statistics").mkdir(parents=True)
        (net / "speed").write_text("100000\n")
        port = root / f"sys/class/infiniband/mlx5_{i}/ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        for path in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"):
            (net / "statistics" / path).write_text(f"{10**15 + i}\n")
        for path in ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets"):
            (port / "counters" / path).write_text(f"{10**14 + i}\n")
        (port / "hw_counters").mkdir()
        for name in EVENTS:
            (port / "hw_counters" / name).write_text(f"{i}\n")
    (root / "proc").mkdir()
    for name in ("stat", "softirqs"):
        (root / "proc" / name).write_text(Path("/proc", name).read_text())


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sampled(root: str, out: str, seconds: float, every_ns: int, kinds: str) -> dict[str, float]:
    from wirecost.counters import Sampler
    from wirecost.counters.ethernet import EthernetSource
    from wirecost.counters.infiniband import InfinibandSource
    from wirecost.counters.jsonl import JsonlWriter
    from wirecost.counters.rdma_events import RdmaEventSource
    from wirecost.counters.softirq import SoftirqSource

    if kinds == "run":
        from wirecost.counters.ethernet import SwitchSource

        ports = sorted(name for _, name in socket.if_nameindex())
        sources: list[CounterSource] = [SwitchSource(ports), SoftirqSource()]
        return measured(
            Sampler(every_ns=every_ns, sources=sources, sinks=[JsonlWriter(out, sparse=True)], keep=False), seconds
        )
    path = Path(root)
    makers = {"e": EthernetSource, "i": InfinibandSource, "r": RdmaEventSource, "s": SoftirqSource}
    sources = [makers[k](path) for k in kinds]
    return measured(Sampler(every_ns=every_ns, sources=sources, sinks=[JsonlWriter(out)], keep=False), seconds)


def measured(sampler: Sampler, seconds: float) -> dict[str, float]:
    sampler.sample()
    start, start_s = cpu_s(), time.perf_counter()
    sampler.start()
    time.sleep(seconds)
    used = (cpu_s() - start) / (time.perf_counter() - start_s)
    sampler.stop()
    return {"share": used, "samples": sampler.samples, "devices": len(sampler.latest)}


def plain(root: str, out: str, seconds: float, every_ns: int) -> dict[str, float]:
    """Measures a simple script that reads the same counters."""
    files = [p for ending in ("bytes", "data", "packets") for p in Path(root).glob(f"sys/class/*/*/**/*_{ending}")]
    start, start_s, samples = cpu_s(), time.perf_counter(), 0
    with Path(out).open("w") as file:
        while time.perf_counter() - start_s < seconds:
            for path in files:
                file.write(
                    json.dumps({"t": time.time(), "file": str(path), "value": int(path.read_text())}) + "\n"
                )
            samples += 1
            time.sleep(every_ns * 1e-9)
    used = (cpu_s() - start) / (time.perf_counter() - start_s)
    return {"share": used, "samples": samples, "devices": len(files) // 4}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--every-ms", type=int, default=100)
    parser.add_argument("--ports", type=int, default=16)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    every_ns = options.every_ms * 1_000_000
    if options.child:
        mode, folder = options.child
        out = str(Path(folder) / "out.jsonl")
        if mode == "plain":
            print(json.dumps(plain(folder, out, options.seconds, every_ns)))
        else:
            root, kinds = ("/", "eirs") if mode == "real" else (folder, mode)
            print(json.dumps(sampled(root, out, options.seconds, every_ns, kinds)))
        return
    runs = [
        (f"{options.ports} InfiniBand ports", "i"),
        (f"{options.ports} InfiniBand ports and events", "ir"),
        (f"{options.ports} Ethernet ports", "e"),
        (f"{options.ports} of each, and softirqs", "eis"),
        (f"{options.ports} of each, the plain way", "plain"),
        ("this machine's own", "real"),
        ("as beside an engine run", "run"),
    ]
    print(f"{'what':<32} {'devices':>7} {'samples':>8} {'CPU':>9} of one core at {1000 / options.every_ms:g} Hz")
    for title, mode in runs:
        with tempfile.TemporaryDirectory() as folder:
            make_tree(Path(folder), options.ports)
            command = [sys.executable, __file__, "--child", mode, folder, "--seconds", str(options.seconds)]
            command += ["--every-ms", str(options.every_ms)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{title:<32} {answer['devices']:>7} {answer['samples']:>8} {answer['share']:>8.2%}")


if __name__ == "__main__":
    main()
