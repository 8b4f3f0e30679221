"""A port of an RDMA device as sysfs shows it."""

from __future__ import annotations

from pathlib import Path

from wirecost.counters.rdma_events import GROUP_OF

PMA = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
)


def write_port(root: Path, name: str = "mlx5_0/1", *, rate: str = "400 Gb/sec (4X NDR)", **events: int) -> Path:
    """Writes a port's counters; those of `events` not given before are added, others keep their values."""
    device, _, number = name.partition("/")
    port = root / f"sys/class/infiniband/{device}/ports/{number}"
    for folder in ("counters", "hw_counters"):
        (port / folder).mkdir(parents=True, exist_ok=True)
    for file, text in (("rate", rate), ("state", "4: ACTIVE"), ("link_layer", "InfiniBand")):
        (port / file).write_text(f"{text}\n")
    for counter, count in events.items():
        folder = "counters" if counter in PMA else "hw_counters"
        assert counter in GROUP_OF
        (port / folder / counter).write_text(f"{count}\n")
    (port / "hw_counters/lifespan").write_text("10\n")
    for direction in ("rcv", "xmit"):
        (port / f"counters/port_{direction}_data").write_text("0\n")
    return port
