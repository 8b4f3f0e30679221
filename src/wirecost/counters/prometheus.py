"""Serves the latest sample to a Prometheus scraper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wirecost.counters.rdma_events import GROUP_OF, KIND
from wirecost.counters.rows import Row
from wirecost.errors import MissingExtraError, WirecostError

_STALE_NS = 10_000_000_000


class PrometheusExporter:
    """A sink of the sampler that serves `wirecost_*` metrics over HTTP once it is created.

    Raises:
        MissingExtraError: without prometheus-client.
        WirecostError: if the address can't be used.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        try:
            import prometheus_client
            from prometheus_client.core import CollectorRegistry
        except ImportError:
            raise MissingExtraError("--prometheus", "monitor") from None
        self._rows: dict[tuple[str, str], Row] = {}
        registry = CollectorRegistry()
        registry.register(_Collector(self))
        try:
            self._server, self._thread = prometheus_client.start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise WirecostError(f"can't serve Prometheus on {address}:{port}: {reason}") from None
        self.port: int = self._server.server_port

    def write(self, rows: Sequence[Row]) -> None:
        # Kept for some time after its last sample, because expensive sources aren't read each time.
        now = max((r.t_ns for r in rows), default=0)
        recent = {k: r for k, r in self._rows.items() if r.t_ns > now - _STALE_NS}
        self._rows = recent | {(r.kind, r.device): r for r in rows}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def rows(self) -> Iterable[Row]:
        return self._rows.values()


_COUNTERS = (
    ("rx_bytes", "wirecost_receive_bytes", "Bytes received since the monitor started"),
    ("tx_bytes", "wirecost_transmit_bytes", "Bytes sent since the monitor started"),
)
_GAUGES = (
    ("link_Bps", "wirecost_link_bytes_per_second", "Nominal speed of the link in one direction"),
    ("softirq_cores", "wirecost_softirq_cores", "Cores' worth of CPU time spent in softirqs"),
    ("softirq_busiest_core", "wirecost_softirq_busiest_core_ratio", "Share of the busiest core spent in softirqs"),
    ("net_rx_per_s", "wirecost_net_rx_softirqs_per_second", "Network receive softirqs a second"),
    ("net_tx_per_s", "wirecost_net_tx_softirqs_per_second", "Network transmit softirqs a second"),
)


_EVENTS = "wirecost_rdma_events"


class _Collector:
    """A collector from which prometheus_client gets the current metrics."""

    def __init__(self, exporter: PrometheusExporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = list(self._exporter.rows())
        for families, make in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
            for column, name, help_ in families:
                family = make(name, help_, labels=["kind", "device"])
                for row in rows:
                    value = getattr(row, column)
                    if value is not None and row.kind != KIND:  # the port's own row has the link's speed
                        family.add_metric([row.kind, row.device], value)
                yield family
        yield _events(rows)


def _events(rows: Sequence[Row]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    help_ = "Errors and congestion that RDMA ports counted since the monitor started"
    family = CounterMetricFamily(_EVENTS, help_, labels=["device", "counter", "group"])
    for row in rows:
        for event in row.events or ():
            family.add_metric([row.device, event.counter, str(GROUP_OF[event.counter])], event.count)
    return family
