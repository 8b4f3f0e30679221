"""Reads counters of errors and congestion of RDMA ports from /sys/class/infiniband.

Names: InfiniBand specification (PortCounters, 16.1.3.5) for `counters`; the Linux drivers mlx5, bnxt_re, irdma,
efa, mana and rxe for `hw_counters`. Completions with errors are left out: closing a connection counts some.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from wirecost.counters.files import CounterFile, names_in, open_if_there
from wirecost.counters.infiniband import port_rate_Bps
from wirecost.counters.interface import Reading

KIND = "rdma"
PACE_NS = 1_000_000_000
"""Least time between two readings. Some devices are queried for each, which takes a tenth of a millisecond."""


class Group(StrEnum):
    """The kind of events that a counter counts."""

    LINK = "link"
    LOST = "lost"
    NOT_READY = "not_ready"
    FAILED = "failed"
    CONGESTION = "congestion"
    WAIT = "wait"


_NAMES = {
    Group.LINK: """
        symbol_error link_error_recovery link_downed local_link_integrity_errors port_rcv_errors
        port_rcv_remote_physical_errors excessive_buffer_overrun_errors rx_icrc_encapsulated
    """,
    Group.LOST: """
        port_xmit_discards out_of_sequence packet_seq_err implied_nak_seq_err local_ack_timeout_err
        duplicate_request roce_adp_retrans roce_adp_retrans_to rx_drops retrans_pkts retrans_timeout_events
        to_retransmits seq_err_naks_rcvd oos_drop_count out_of_seq_request rcvd_seq_err requester_timeout
        requester_oos_nak requester_implicit_nak responder_oos responder_dup_request
    """,
    Group.NOT_READY: """
        out_of_buffer rnr_nak_retry_err rnr_naks_rcvd rcvd_rnr_err send_rnr_err requester_rnr_nak responder_rnr_nak
    """,
    Group.FAILED: """
        req_remote_access_errors req_remote_invalid_request resp_remote_access_errors
        resp_local_length_error req_transport_retries_exceeded req_rnr_retries_exceeded max_retry_exceeded
        retry_exceeded_err retry_rnr_exceeded_err unrecoverable_err requester_retries_exceeded
        requester_rnr_nak_retries_exceeded unresponsive_remote_events impaired_remote_conn_events
    """,
    Group.CONGESTION: """
        np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled roce_slow_restart_cnps tx_cnp_pkts rx_cnp_pkts
        rx_ecn_marked_pkts cnpSent cnpHandled RxECNMrkd sent_cnps received_cnps
    """,
    Group.WAIT: "port_xmit_wait",
}
GROUP_OF = {name: group for group, names in _NAMES.items() for name in names.split()}
"""The kind of events by counter."""


class RdmaEventSource:
    """Event counters of all ports of all RDMA devices, of kind "rdma". `root` replaces / in tests."""

    pace_ns = PACE_NS

    def __init__(self, root: Path = Path("/")) -> None:
        self._directory = root / "sys/class/infiniband"
        self._files: dict[str, list[tuple[str, CounterFile]]] = {}
        self._links: dict[str, float | None] = {}

    def read(self) -> list[Reading]:
        ports = {
            f"{device}/{port}": self._directory / device / "ports" / port
            for device in names_in(self._directory)
            for port in names_in(self._directory / device / "ports")
        }
        for gone in self._files.keys() - ports.keys():
            self._drop(gone)
        readings = []
        for name, path in ports.items():
            if name not in self._files:
                self._files[name] = list(_open(path))
                self._links[name] = port_rate_Bps(path)
            events = self._events(name)
            if events:
                reading = Reading(KIND, name, time.monotonic_ns(), link_Bps=self._links[name], events=events)
                readings.append(reading)
        return readings

    def close(self) -> None:
        for name in list(self._files):
            self._drop(name)

    def _events(self, name: str) -> tuple[tuple[str, int], ...]:
        """Returns the counters of a port; none if the device vanished or its driver was reloaded."""
        try:
            return tuple((counter, file.read_int()) for counter, file in self._files[name])
        except (OSError, ValueError):
            self._drop(name)
            return ()

    def _drop(self, name: str) -> None:
        for _, file in self._files.pop(name):
            file.close()


def _open(port: Path) -> Iterable[tuple[str, CounterFile]]:
    """Yields the readable counters of a port by name."""
    for folder in ("counters", "hw_counters"):
        for name in names_in(port / folder):
            if name not in GROUP_OF or (file := open_if_there(port / folder / name)) is None:
                continue
            try:
                file.read_int()
            except (OSError, ValueError):  # a port can list a counter that it doesn't have
                file.close()
            else:
                yield name, file
