"""Detects iterations that waited for the host instead of the device."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from wirecost.diagnostics import Diagnostic, diagnostic

LAUNCH_BOUND = 0.95
"""Share of an iteration spent on kernel launches from which on it counts as launch-bound."""


def launch_bound(measured: Sequence[Sequence[dict[str, Any]]]) -> list[Diagnostic]:
    """Returns a diagnostic if a rank's device waited for the host to launch its kernels.

    An iteration is launch-bound if the launches took at least `LAUNCH_BOUND` of the median iteration, and the
    device kept up with the host in most iterations. (A slower device delays the host as well, but lags behind it.)

    Args:
        measured: each rank's samples as in `samples/rank-R.jsonl`; on a CPU there is no diagnostic.
    """
    launch_bound_ranks: list[tuple[float, int, float, float, str]] = []
    for rank, samples in enumerate(measured):
        known = [s for s in samples if s.get("host_issue_ns") is not None and s.get("kept_pace") is not None]
        if not known:
            continue
        issues_ns = [s["host_issue_ns"] for s in known]
        issue_ns = statistics.median(issues_ns)
        device_ns = statistics.median(s["end_ns"] - s["start_ns"] for s in known)
        kept_pace = sum(s["kept_pace"] for s in known)
        if 2 * kept_pace > len(known) and issue_ns >= LAUNCH_BOUND * device_ns:
            around = f"{min(issues_ns) * 1e-6:.1f} to {max(issues_ns) * 1e-6:.1f}"
            launch_bound_ranks.append((issue_ns / device_ns, rank, issue_ns, device_ns, around))
    if not launch_bound_ranks:
        return []
    _, rank, issue_ns, device_ns, around = max(launch_bound_ranks)
    return [
        diagnostic(
            "launch_bound",
            f"launch-bound on {len(launch_bound_ranks)} of {len(measured)} ranks: on rank {rank} the host takes "
            f"{issue_ns * 1e-6:.1f} ms ({around}) to issue an iteration of {device_ns * 1e-6:.1f} ms, and the "
            "device waits for it",
        )
    ]
