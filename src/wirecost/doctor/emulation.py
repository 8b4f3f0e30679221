"""What this machine offers for emulated hosts and networks: namespaces, veth, tbf, netem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine

_TIMEOUT_S = 20


def probe(machine: Machine) -> Iterator[Diagnostic]:
    most = machine.number("proc/sys/user/max_net_namespaces")
    if most == 0:
        yield diagnostic(
            "emulation_no_namespaces",
            "this kernel allows no network namespaces (user.max_net_namespaces is 0): hosts can't be emulated",
        )
        return
    if not machine.live:
        return
    found = _try()
    root = os.geteuid() == 0
    if "error" in found:
        yield diagnostic(
            "emulation_refused",
            f"hosts can't be emulated: {found['error']}",
            remedy="run as root, or permit user namespaces: sysctl kernel.unprivileged_userns_clone=1 and "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container add CAP_SYS_ADMIN"
            if not root
            else "give the container CAP_SYS_ADMIN and CAP_NET_ADMIN, or run on the host",
        )
        return
    how = "as root" if found["root"] else "without root, in a user namespace"
    for part, what in (("veth", "cables between them"), ("tbf", "limited rates")):
        if not found[part]:
            yield diagnostic(
                "emulation_part_missing",
                f"network namespaces work {how}, but not {part} ({what})",
                remedy=f"load the kernel module: modprobe {'veth' if part == 'veth' else 'sch_tbf'}",
            )
    if found["veth"] and found["tbf"]:
        yield diagnostic(
            "emulation_works",
            f"emulated hosts with limited rates work here ({how}: namespaces, veth, tbf)",
        )
    if found["netem"]:
        yield diagnostic(
            "emulation_delay_works",
            "added delay works here (netem)",
        )
    else:
        yield diagnostic(
            "emulation_no_delay",
            "no netem in this kernel: added delay and loss can't be emulated",
        )


def _try() -> dict[str, bool | str]:
    """Tries it in a namespace of a process of its own, which takes everything with it when it ends."""
    command = [sys.executable, "-m", "wirecost.doctor.try_namespace"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"the kernel didn't answer within {_TIMEOUT_S} s"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return {"error": last[0] if last else f"the attempt ended with {done.returncode}"}
