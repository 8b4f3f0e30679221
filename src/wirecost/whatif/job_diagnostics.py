"""What the traces of a job lack for answers."""

from __future__ import annotations

from collections.abc import Sequence

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.whatif.nodes import Graph
from wirecost.whatif.reading import RankRecord


def job_diagnostics(records: Sequence[RankRecord], graph: Graph, world: int) -> list[Diagnostic]:
    """Returns what makes answers about a job less certain."""
    found: list[Diagnostic] = []
    ranks = len(records)
    if ranks < world:
        found.append(
            diagnostic(
                "ranks_missing",
                f"{ranks} of {world} ranks are there: what others make these wait for stays as recorded",
            )
        )
    if graph.step_count < 3:
        found.append(
            diagnostic(
                "few_steps",
                f"{graph.step_count} step{'s are' if graph.step_count != 1 else ' is'} recorded: the first one "
                "after the profiler starts isn't a steady one, and edges are checked against few others",
            )
        )
    if ranks > 1 and not any(c.members > 1 for c in graph.collectives):
        found.append(
            diagnostic(
                "whatif_unmatched",
                "no communication is matched over the ranks, so their traces are of different steps or jobs: "
                "each rank is replayed alone, and what it waits for stays as recorded",
            )
        )
    if graph.open_end:
        found.append(
            diagnostic(
                "whatif_steps_left_out",
                f"the ranks have {graph.step_count} steps in common; what else was recorded is left out",
            )
        )
    if any(r.diagnostics.count("cut_off") for r in records):
        files = ", ".join(r.name for r in records if r.diagnostics.count("cut_off"))
        found.append(diagnostic("whatif_truncated", f"the end of a file is missing: {files}"))
    if any(i.window.cut for r in records for i in r.trace.iterations):
        found.append(diagnostic("whatif_cut", "a recorded step is cut off: its end is missing from the replay"))
    return found
