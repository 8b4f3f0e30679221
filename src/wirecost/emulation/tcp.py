"""Congestion control of the TCP connections between emulated hosts."""

from __future__ import annotations

from pathlib import Path

CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
PREFERRED = ("cubic", "reno")
"""Congestion controls in the order of preference.

CUBIC is the default of Linux. A machine may permit namespaces only its own default and Reno. Reno then replaces
CUBIC, which behaves like Reno at the short round trips of a cluster (RFC 9438, section 4.3). Other defaults say
nothing about networks: BBR reaches a third of Reno's rate between namespaces (docs/explanation/emulation.md).
"""


def set_congestion_control(path: Path = CONTROL) -> str | None:
    """Sets the first permitted control of `PREFERRED` for the network namespace of the calling thread.

    Returns:
        The control that new connections use, or None if the kernel doesn't report it.
    """
    for name in PREFERRED:
        try:
            path.write_text(name)
            break
        except OSError:
            continue
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
