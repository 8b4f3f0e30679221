"""Errors and congestion of RDMA ports: read, counted from the first sample, and explained."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.rdma import write_port
from wirecost.counters import Event, Row, Sampler, of_summary, read_jsonl
from wirecost.counters.infiniband import InfinibandSource
from wirecost.counters.jsonl import JsonlWriter
from wirecost.counters.parquet import ParquetWriter, read_parquet
from wirecost.counters.rdma_diagnostics import CODES, during, since_start
from wirecost.counters.rdma_events import GROUP_OF, Group, RdmaEventSource
from wirecost.diagnostics import Severity

NDR_Bps = 50e9


def events_of(row: Row) -> dict[str, int]:
    return {event.counter: event.count for event in row.events or ()}


def test_known_counters_are_read_and_others_left_alone(tmp_path: Path) -> None:
    port = write_port(tmp_path, out_of_sequence=7, np_cnp_sent=3, port_xmit_wait=12, symbol_error=0)
    (port / "hw_counters/unheard_of").write_text("5\n")
    (port / "counters/link_downed").write_text("N/A\n")
    (reading,) = RdmaEventSource(tmp_path).read()
    assert (reading.kind, reading.device, reading.link_Bps) == ("rdma", "mlx5_0/1", NDR_Bps)
    assert dict(reading.events) == {
        "port_xmit_wait": 12,
        "symbol_error": 0,
        "np_cnp_sent": 3,
        "out_of_sequence": 7,
    }


def test_ports_that_come_go_and_count_nothing(tmp_path: Path) -> None:
    source = RdmaEventSource(tmp_path)
    assert source.read() == []
    write_port(tmp_path, "mlx5_0/1", symbol_error=1)
    write_port(tmp_path, "mlx5_1/1")
    assert [r.device for r in source.read()] == ["mlx5_0/1"]
    shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0")
    write_port(tmp_path, "mlx5_2/1", symbol_error=1)
    assert [r.device for r in source.read()] == ["mlx5_2/1"]
    source.close()


def test_counts_are_from_the_first_sample_on_and_in_the_summary(tmp_path: Path) -> None:
    write_port(tmp_path, out_of_sequence=1000, rp_cnp_handled=5)
    sampler = Sampler(sources=[InfinibandSource(tmp_path), RdmaEventSource(tmp_path)])
    sampler.sample(every_source=True)
    write_port(tmp_path, out_of_sequence=1037, rp_cnp_handled=5)
    rows = {row.kind: row for row in sampler.sample(every_source=True)}
    assert events_of(rows["rdma"]) == {"out_of_sequence": 37, "rp_cnp_handled": 0}
    assert rows["infiniband"].events is None and rows["rdma"].rx_bytes is None
    (lost,) = of_summary(sampler.summary())
    assert (lost.subject, lost.code, lost.severity, lost.count) == (
        "mlx5_0/1",
        CODES[Group.LOST],
        Severity.WARNING,
        37,
    )
    assert lost.message == "packets lost, repeated or out of order: out_of_sequence 37"


def test_events_are_read_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    write_port(tmp_path, symbol_error=0)
    sampler = Sampler(every_ns=1_000_000, sources=[RdmaEventSource(tmp_path)])
    sampler.sample()
    write_port(tmp_path, symbol_error=2)
    assert sampler.sample() == []
    sampler.stop()
    assert events_of(sampler.rows[-1]) == {"symbol_error": 2}


def test_a_reset_counter_begins_anew(tmp_path: Path) -> None:
    write_port(tmp_path, symbol_error=10)
    sampler = Sampler(sources=[RdmaEventSource(tmp_path)])
    for count in (10, 2**33, 3, 8):
        write_port(tmp_path, symbol_error=count)
        rows = sampler.sample(every_source=True)
    assert events_of(rows[0]) == {"symbol_error": 2**33 - 10 + 5}


@pytest.mark.parametrize("sparse", [False, True])
def test_events_in_json_lines(tmp_path: Path, sparse: bool) -> None:
    rows = [Row(1, 2, "rdma", "mlx5_0/1", events=(Event("symbol_error", 3),)), Row(1, 2, "ethernet", "eth0", 5, 6)]
    writer = JsonlWriter(tmp_path / "x.jsonl", sparse=sparse)
    writer.write(rows)
    writer.close()
    assert list(read_jsonl(tmp_path / "x.jsonl")) == rows


def test_events_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    rows = [Row(1, 2, "rdma", "mlx5_0/1", events=(Event("symbol_error", 3),)), Row(1, 2, "ethernet", "eth0", 5, 6)]
    writer = ParquetWriter(tmp_path / "x.parquet")
    writer.write(rows)
    writer.close()
    assert read_parquet(tmp_path / "x.parquet") == rows


@pytest.mark.parametrize(
    ("counter", "group", "words"),
    [
        ("symbol_error", Group.LINK, "errors on the link"),
        ("packet_seq_err", Group.LOST, "packets lost"),
        ("rnr_nak_retry_err", Group.NOT_READY, "no buffer at the receiver"),
        ("req_transport_retries_exceeded", Group.FAILED, "operations that failed"),
        ("np_cnp_sent", Group.CONGESTION, "senders were slowed down"),
    ],
)
def test_what_counts_mean(counter: str, group: Group, words: str) -> None:
    (counted,) = during({counter: 5000, "link_downed": 0}, "mlx5_0/1", 10.0, NDR_Bps)
    assert (counted.code, counted.severity) == (CODES[group], Severity.WARNING)
    assert words in counted.message and f"{counter} 5000" in counted.message and counted.remedy
    (old,) = since_start({counter: 5000}, "mlx5_0/1")
    assert old.severity is Severity.INFO and "since the driver was loaded" in old.message


def test_few_congestion_notifications_are_no_warning() -> None:
    (few,) = during({"rp_cnp_handled": 40}, "mlx5_0/1", 10.0, NDR_Bps)
    (many,) = during({"rp_cnp_handled": 4000}, "mlx5_0/1", 10.0, NDR_Bps)
    assert (few.severity, many.severity) == (Severity.INFO, Severity.WARNING)


def test_waiting_is_a_share_of_the_links_time() -> None:
    (waited,) = during({"port_xmit_wait": int(0.05 * NDR_Bps * 10)}, "mlx5_0/1", 10.0, NDR_Bps)
    assert waited.severity is Severity.WARNING and "at least 5 % of the link's" in waited.message
    (waited,) = during({"port_xmit_wait": int(0.005 * NDR_Bps * 10)}, "mlx5_0/1", 10.0, NDR_Bps)
    assert waited.severity is Severity.INFO
    assert not list(during({"port_xmit_wait": 1000}, "mlx5_0/1", 10.0, NDR_Bps))
    assert not list(during({"port_xmit_wait": 10**9}, "mlx5_0/1", 10.0, None))
    assert not list(since_start({"port_xmit_wait": 10**9}, "mlx5_0/1"))


@given(st.dictionaries(st.sampled_from(sorted(GROUP_OF)), st.integers(0, 2**64)), st.floats(0, 1e6))
def test_one_diagnostic_for_each_group(events: dict[str, int], seconds: float) -> None:
    group_of_code = {code: group for group, code in CODES.items()}
    counted = list(during(events, "x/1", seconds, NDR_Bps))
    groups = [group_of_code[d.code] for d in counted]
    assert len(groups) == len(set(groups))
    assert set(groups) - {Group.WAIT} == {GROUP_OF[n] for n, count in events.items() if count} - {Group.WAIT}
