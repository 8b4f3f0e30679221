"""NCCL logs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wirecost.api.view import ResultView, Rows
from wirecost.ncclog import Transport, Verdict

if TYPE_CHECKING:
    import altair


class TransportView(ResultView):
    """The transports that NCCL logs prove.

    Attributes:
        verdict: all that the logs say, for each communicator and each pair of hosts.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    @property
    def tables(self) -> tuple[str, ...]:
        return ("pairs", "diagnostics")

    @property
    def transport(self) -> Transport:
        """The transport of the whole job. It is `unknown` if the logs don't prove one."""
        return self.verdict.verdict

    @property
    def reason(self) -> str | None:
        """The reason for which the transport is unknown. None if it is known."""
        return self.verdict.reason

    def _rows(self, table: str) -> Rows:
        if table == "diagnostics":
            return [d.as_row() for d in self.verdict.diagnostics]
        return [
            {
                "communicator": c.id,
                "ranks_seen": c.ranks_seen,
                "ranks": c.nranks,
                "first_host": p.hosts[0],
                "second_host": p.hosts[1],
                "where": p.where.value,
                "transport": p.verdict.value,
                "networks": ", ".join(p.networks),
                "interfaces": ", ".join(p.interfaces),
                "gpudirect": p.gpudirect.value if p.gpudirect else None,
                "connections": p.edges,
            }
            for c in self.verdict.communicators
            for p in c.pairs
        ]

    def chart(self) -> altair.Chart:
        """Returns a matrix of hosts, coloured by the transport between them."""
        import altair as alt

        rows = [
            {"first": r["first_host"] or "unknown", "second": r["second_host"] or "unknown", **r}
            for r in self.rows()
        ]
        return (
            alt.Chart(alt.InlineData(values=rows), title="Transport between hosts")
            .mark_rect()
            .encode(
                x=alt.X("second:N", title=None),
                y=alt.Y("first:N", title=None),
                color=alt.Color("transport:N"),
                tooltip=["first:N", "second:N", "transport:N", "networks:N", "connections:Q"],
            )
        )

    def _headline(self) -> str:
        why = f" because {self.reason}" if self.reason else ""
        return f"{self.transport.value}{why}"


def read_logs(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> TransportView:
    """Reads logs of a job that ran with NCCL_DEBUG=INFO: files or directories, compressed or not.

    Raises:
        WirecostError: if a path can't be read.
    """
    from wirecost.ncclog import read_logs as read

    return TransportView(read([paths] if isinstance(paths, str | os.PathLike) else paths))
