"""The diagnostics that change how the numbers of a set of traces are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from wirecost.diagnostics import Diagnostic, Severity, loses_data
from wirecost.trace.matched_traces import MatchedTraces

_NOTABLE_INFO = ("clocks_not_aligned", "clock_offsets", "rank_unknown")
_NAMED_RANKS = 4  # of more ranks only the number is said


def notable_diagnostics(s: MatchedTraces) -> list[Diagnostic]:
    """Returns warnings and a few remarks, each code once over all ranks, with the ranks as subject.

    Warnings come first, of them those of lost data. The message is the first rank's; the count is the sum.
    """
    by_code: dict[str, list[tuple[int | None, Diagnostic]]] = defaultdict(list)
    for trace in s.traces:
        for each in trace.diagnostics:
            by_code[each.code].append((trace.rank, each))
    for each in s.run_diagnostics:
        by_code[each.code].append((None, each))
    merged = [
        _merged(listed, len(s.traces))
        for code, listed in by_code.items()
        if code in _NOTABLE_INFO or listed[0][1].severity.is_at_least(Severity.WARNING)
    ]
    return sorted(merged, key=lambda d: (d.severity is Severity.INFO, not loses_data(d), d.code))


def _merged(listed: Sequence[tuple[int | None, Diagnostic]], traces: int) -> Diagnostic:
    """Returns the diagnostics of one code as one; its message gives the count if it exceeds one per rank."""
    first = listed[0][1]
    count = sum(each.count or 0 for _, each in listed)
    times = f", {count} times" if count > len(listed) and first.severity is not Severity.INFO else ""
    ranks = [rank for rank, _ in listed if rank is not None]
    return replace(first, message=first.message + times, subject=_subject(ranks, traces), count=count)


def _subject(ranks: Sequence[int], traces: int) -> str | None:
    """Returns the ranks as text; None if there is one trace or all ranks are meant."""
    if traces < 2 or not ranks:
        return None
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= _NAMED_RANKS and len(ranks) < traces:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"all {traces} ranks" if len(ranks) == traces else f"{len(ranks)} of {traces} ranks"
