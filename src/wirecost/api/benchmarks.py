"""Benchmarks of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirecost.api.view import ResultView, Rows
from wirecost.collectives.bench import run_bench
from wirecost.collectives.options import BenchOptions, request_from
from wirecost.collectives.result import BenchNetwork, Row

if TYPE_CHECKING:
    import altair


class BenchResults(ResultView):
    """Measured times and bandwidths of collectives.

    Attributes:
        network: the network that was measured, with the transport that NCCL reported.
        measurements: a record for each collective, size and mode.
    """

    def __init__(self, network: BenchNetwork, measurements: Sequence[Row]) -> None:
        self.network = network
        self.measurements = measurements

    @property
    def tables(self) -> tuple[str, ...]:
        return ("measurements",)

    @property
    def bus_bandwidth_GBps(self) -> float | None:
        """The largest bus bandwidth in GB/s. None if there is none."""
        return max((row.busbw_Bps * 1e-9 for row in self.measurements if row.busbw_Bps), default=None)

    def _rows(self, table: str) -> Rows:
        left_out = {"rounds_ns", "groups_ns"}
        return [row.model_dump(mode="json", exclude=left_out) for row in self.measurements]

    def chart(self) -> altair.Chart:
        """Returns bus bandwidth over size."""
        import altair as alt

        rows = [{**row, "busbw_GBps": row["busbw_Bps"] * 1e-9} for row in self.rows() if row["busbw_Bps"]]
        return (
            alt.Chart(alt.InlineData(values=rows), title=f"Bus bandwidth over {self.network.name}")
            .mark_line(point=True)
            .encode(
                x=alt.X("size_bytes:Q", scale=alt.Scale(type="log", base=2), title="size in bytes"),
                y=alt.Y("busbw_GBps:Q", title="bus bandwidth in GB/s"),
                color=alt.Color("collective:N", title=None),
                strokeDash=alt.StrokeDash("mode:N", title=None),
            )
            .properties(width=480)
        )

    def _headline(self) -> str:
        best = self.bus_bandwidth_GBps
        shown = "unknown" if best is None else f"{best:.4g} GB/s"
        emulated = " (emulated)" if self.network.emulated else ""
        return f"{self.network.name}{emulated}: largest bus bandwidth {shown}"


def bench(
    collectives: str | Sequence[str] = "all_reduce",
    *,
    smallest: str | int = "32M",
    largest: str | int | None = None,
    factor: int | None = None,
    hosts: int | None = None,
    ranks_per_host: int | None = None,
    network: str | None = None,
    backend: str | None = None,
    dtype: str = "float",
    redop: str = "sum",
    iterations: int | None = None,
    warmup: int = 5,
    check: bool = True,
    timeout: str = "60 s",
) -> BenchResults:
    """Measures collectives on this machine, in processes of its own.

    Args:
        collectives: names of collectives, or `all`.
        smallest, largest: sizes, as `64M` or in bytes. One size if `largest` is left out.
        factor: each size is so many times the one before. The default is 2.
        hosts: number of emulated hosts. The default is 2 with an emulated network, else 1.
        ranks_per_host: number of ranks on each host. The default is 1, or 2 on one host.
        network: a network that ships, or a YAML file.
        backend: `gloo`, or `nccl` on GPUs.
        dtype: type of the elements.
        redop: `sum`, `max` or `min`.
        iterations: messages in each of five rounds. The default is as many as 0.25 s allow.
        warmup: messages at each size before measuring.
        check: whether results are checked on random data.
        timeout: time that a rank may take to come, or for one size.

    Raises:
        WirecostError: if it can't be measured on this machine, or the benchmark fails.
    """
    request = request_from(
        BenchOptions(
            collectives=[collectives] if isinstance(collectives, str) else collectives,
            smallest=str(smallest),
            largest=None if largest is None else str(largest),
            factor=factor,
            step=None,
            hosts=hosts,
            ranks_per_host=ranks_per_host,
            network=network,
            groups="1",
            backend=backend,
            dtype=dtype,
            redop=redop,
            iterations=iterations,
            warmup=warmup,
            check=check,
            place="both",
            timeout=timeout,
            seed=1,
        )
    )
    measured_network, rows = run_bench(request)
    return BenchResults(measured_network, rows)
