"""The sampler: rates from real times, late samples, devices that vanish, errors that surface."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from wirecost.counters import Reading, Row, Sampler, read_jsonl
from wirecost.counters.jsonl import JsonlWriter
from wirecost.counters.monitor import writer_for
from wirecost.counters.parquet import ParquetWriter
from wirecost.errors import WirecostError

S = 10**9


class Script:
    """A source that gives one prepared answer after the other, then the last one again."""

    def __init__(self, *answers: Sequence[Reading]) -> None:
        self.answers = [list(a) for a in answers]
        self.closed = False

    def read(self) -> list[Reading]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def close(self) -> None:
        self.closed = True


def eth(t_ns: int, rx: int, tx: int, device: str = "eth0", **more: float) -> Reading:
    return Reading("ethernet", device, t_ns, rx, tx, **more)  # type: ignore[arg-type]


def test_rates_are_over_the_real_time_between_readings() -> None:
    sampler = Sampler(sources=[Script([eth(0, 100, 0)], [eth(S // 10, 1100, 50)], [eth(3 * S, 30100, 50)])])
    for _ in range(3):
        sampler.sample()
    assert [(r.rx_bytes, r.rx_Bps, r.tx_Bps, r.note) for r in sampler.rows] == [
        (0, None, None, "first"),
        (1000, 10_000.0, 500.0, None),
        (30_000, 10_000.0, 0.0, None),  # 2.9 s later: late, and the rate still true
    ]


def test_units_and_wraps_come_out_in_bytes() -> None:
    def ib(t_ns: int, words: int) -> Reading:
        return Reading("infiniband", "mlx5_0/1", t_ns, words, words, 4, 12.5e9)

    sampler = Sampler(sources=[Script([ib(0, 2**32 - 1000)], [ib(S, 4000)])])
    sampler.sample()
    (row,) = sampler.sample()
    assert (row.rx_bytes, row.rx_Bps) == (20_000, 20_000.0)


def test_a_device_that_vanishes_and_comes_back() -> None:
    script = Script(
        [eth(0, 0, 0), eth(0, 9, 9, "eth1")],
        [eth(S, 10, 0)],
        [eth(2 * S, 20, 0), eth(2 * S, 5, 5, "eth1")],
        [eth(3 * S, 30, 0), eth(3 * S, 25, 5, "eth1")],
    )
    sampler = Sampler(sources=[script])
    sampler.sample()
    assert ("ethernet", "eth1") in sampler.latest
    sampler.sample()
    assert ("ethernet", "eth1") not in sampler.latest
    back = sampler.sample()[1]
    assert (back.note, back.rx_Bps, back.rx_bytes) == ("first", None, 0)
    assert sampler.sample()[1].rx_Bps == 20.0
    summary = {d.device: d for d in sampler.summary()}
    assert (summary["eth0"].rx_bytes, summary["eth1"].rx_bytes) == (30, 20)


def test_a_counter_that_was_reset_gives_no_rate() -> None:
    sampler = Sampler(sources=[Script([eth(0, 10**12, 0)], [eth(S, 500, 0)], [eth(2 * S, 700, 0)])])
    rows = [sampler.sample()[0] for _ in range(3)]
    assert [(r.rx_Bps, r.note) for r in rows] == [(None, "first"), (None, "reset"), (200.0, None)]
    assert sampler.summary()[0].resets == 1


def test_unknown_is_none_and_gauges_have_their_columns() -> None:
    reading = Reading("cpu", "softirq", 5, gauges=(("softirq_cores", 0.25),))
    sampler = Sampler(sources=[Script([reading])])
    (row,) = sampler.sample()
    assert row.softirq_cores == 0.25
    assert (row.rx_bytes, row.tx_bytes, row.rx_Bps, row.net_rx_per_s) == (None, None, None, None)


def test_two_readings_at_one_moment_give_no_rate() -> None:
    sampler = Sampler(sources=[Script([eth(5, 0, 0)], [eth(5, 10, 0)])])
    sampler.sample()
    assert sampler.sample()[0].rx_Bps is None


def test_a_source_that_is_dear_to_read_keeps_its_own_pace() -> None:
    class Dear(Script):
        pace_ns = 3600 * S

    dear = Dear([eth(0, 0, 0, "gpu0")], [eth(S, 100, 0, "gpu0")])
    sampler = Sampler(sources=[dear, Script([eth(0, 0, 0)])])
    assert [r.device for r in sampler.sample()] == ["gpu0", "eth0"]
    assert [r.device for r in sampler.sample()] == ["eth0"]
    assert ("ethernet", "gpu0") in sampler.latest  # not due is not gone
    sampler.stop()  # the last sample asks everybody, so that totals are whole
    assert [(r.rx_bytes, r.rx_Bps) for r in sampler.rows if r.device == "gpu0"] == [(0, None), (100, 100.0)]


def test_packets_count_from_the_first_sample(tmp_path: Path) -> None:
    def reading(t_ns: int, rx: int, tx: int) -> Reading:
        return Reading("ethernet", "eth0", t_ns, 0, 0, rx_packets=rx, tx_packets=tx)

    sampler = Sampler(sources=[Script([reading(0, 5, 100)], [reading(S, 8, 300)])])
    rows = [sampler.sample()[0] for _ in range(2)]
    assert [(r.rx_packets, r.tx_packets) for r in rows] == [(0, 0), (3, 200)]


def test_only_some_devices() -> None:
    sampler = Sampler(
        sources=[Script([eth(0, 0, 0), eth(0, 0, 0, "veth9"), eth(0, 0, 0, "lo")])], only=["eth*", "lo"]
    )
    assert [r.device for r in sampler.sample()] == ["eth0", "lo"]


def test_late_samples_are_counted_and_not_made_up_for() -> None:
    """A source that blocks for three intervals: the beats in between are missed, the next one is on the grid."""
    stalls = [0.0, 0.35]

    class Slow(Script):
        def read(self) -> list[Reading]:
            time.sleep(stalls.pop(0) if stalls else 0)
            return [eth(time.monotonic_ns(), 0, 0)]

    with Sampler(every_ns=S // 10, sources=[Slow([])]) as sampler:
        time.sleep(0.75)
    assert sampler.late_samples >= 1
    assert any(r.late_ns >= S // 10 for r in sampler.rows)
    times = [r.t_ns for r in sampler.rows]
    assert times == sorted(times)
    assert len(times) <= 9


def test_rows_carry_the_clock_of_iterations() -> None:
    before = time.monotonic_ns()
    with Sampler(every_ns=S // 100) as sampler:
        time.sleep(0.05)
    after = time.monotonic_ns()
    assert sampler.rows
    assert all(before <= r.t_ns <= after for r in sampler.rows)
    assert all(abs(r.unix_ns - r.t_ns - (time.time_ns() - time.monotonic_ns())) < S for r in sampler.rows)


def test_errors_of_the_thread_reach_the_caller() -> None:
    class Broken(Script):
        def read(self) -> list[Reading]:
            if threading.current_thread() is threading.main_thread():
                return []
            raise RuntimeError("the source broke")

    source = Broken([])
    sampler = Sampler(every_ns=S // 1000, sources=[source])
    sampler.start()
    assert sampler._thread is not None
    sampler._thread.join(20)
    with pytest.raises(RuntimeError, match="the source broke"):
        sampler.stop()
    assert source.closed


def test_stop_twice_and_without_start() -> None:
    source = Script([eth(0, 0, 0)])
    sampler = Sampler(sources=[source])
    sampler.stop()
    sampler.stop()
    assert sampler.samples == 1 and source.closed
    with pytest.raises(ValueError, match="every_ns"):
        Sampler(every_ns=0)


ROWS = [Row(1, 2, "ethernet", "eth0", note="first"), Row(3, 4, "ethernet", "eth0", 10, 20, 1.5, 2.5, 1e9, 7)]


def test_jsonl_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    writer.write(ROWS)
    writer.write([])
    writer.close()
    assert list(read_jsonl(path)) == ROWS
    assert json.loads(path.read_text().splitlines()[0])["rx_Bps"] is None
    sparse = JsonlWriter(tmp_path / "sparse.jsonl", sparse=True)
    sparse.write(ROWS)
    sparse.close()
    assert list(read_jsonl(tmp_path / "sparse.jsonl")) == ROWS
    assert "null" not in (tmp_path / "sparse.jsonl").read_text()
    path.write_bytes(path.read_bytes()[:-10])  # killed while writing
    assert list(read_jsonl(path)) == ROWS[:1]
    path.write_text("{}\n")
    with pytest.raises(WirecostError, match="line 1 is not a sample"):
        list(read_jsonl(path))


@pytest.mark.parametrize("rows", [ROWS, []])
def test_parquet(tmp_path: Path, rows: list[Row]) -> None:
    import polars as pl

    path = tmp_path / "a.parquet"
    writer = ParquetWriter(path)
    writer.write(rows)
    writer.close()
    table = pl.read_parquet(path)
    assert table.columns == list(Row.__dataclass_fields__)
    assert table["t_ns"].to_list() == [r.t_ns for r in rows]
    assert table["tx_Bps"].to_list() == [r.tx_Bps for r in rows]
    assert table.schema["rx_bytes"] == pl.Int64
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_a_parquet_file_that_storage_does_not_take_leaves_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library raises no OSError when the file system is full."""
    pl = pytest.importorskip("polars")

    def sink(_: object, path: Path) -> None:
        path.write_bytes(b"PAR1")
        raise pl.exceptions.ComputeError("underlying IO error: No space left on device (os error 28)")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", sink)
    writer = ParquetWriter(tmp_path / "a.parquet")
    writer.write(ROWS)
    with pytest.raises(WirecostError, match=r"No space left on device .*the samples are in '.*partial\.jsonl'"):
        writer.close()
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet.partial.jsonl"]


def test_bad_places_to_write(tmp_path: Path) -> None:
    with pytest.raises(WirecostError, match=r"name it \.jsonl or \.parquet"):
        writer_for(tmp_path / "a.csv")
    with pytest.raises(WirecostError, match=r"can't write '.*': No such file"):
        writer_for(tmp_path / "none" / "a.jsonl")
