"""Readers of nccl-tests' text and JSON and OSU's text. The fixtures are made up in those formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.collectives.readers import ResultFileError, parse_results, read_results
from wirecost.collectives.readers.group_size import ratio_ranks
from wirecost.collectives.readers.printed import Printed
from wirecost.collectives.request import Mode
from wirecost.errors import WirecostError

NEW = """\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid    100 on      nodea device  0 [0000:01:00] NVIDIA A
#  Rank  1 Group  0 Pid    101 on      nodea device  1 [0000:02:00] NVIDIA A
#  Rank  2 Group  0 Pid    102 on      nodeb device  0 [0000:01:00] NVIDIA A
#  Rank  3 Group  0 Pid    103 on      nodeb device  1 [0000:02:00] NVIDIA A
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.50    0.08    0.12       0    11.00    0.09    0.14       0
        2048           512     float     sum      -1    13.00    0.16    0.24       3    12.00    0.17    0.26     N/A
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 0.19
#
# Collective test concluded: all_reduce_perf
"""

OLD = """\
$ mpirun -np 2 ./build/all_gather_perf -b 1M -e 1M -g 1
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid   7 on a device  0 [0x07] X
#   Rank  1 Pid   8 on b device  0 [0x07] X
#                                                     out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float    250.0    4.19    2.10  0e+00    200.0    5.24    2.62  0e+00
"""

OSU = """\
# OSU MPI {} v7.5
# Datatype: MPI_CHAR.
# Size       {}
{}
"""


def test_new_text() -> None:
    reading = parse_results(NEW, "new")
    assert reading.hosts == 2
    assert [(r.size_bytes, r.mode, r.time_ns, r.wrong) for r in reading.rows] == [
        (1024, Mode.OUT_OF_PLACE, 12500.0, 0),
        (1024, Mode.IN_PLACE, 11000.0, 0),
        (2048, Mode.OUT_OF_PLACE, 13000.0, 3),
        (2048, Mode.IN_PLACE, 12000.0, None),
    ]
    first = reading.rows[0]
    assert (first.collective, first.ranks, first.count, first.dtype, first.redop) == (
        "all_reduce",
        4,
        256,
        "float",
        "sum",
    )
    # Bandwidth follows from size and time, more exactly than it is printed.
    assert first.busbw_Bps == pytest.approx(1024 / 12.5e-6 * 1.5)


def test_old_text_without_redop_and_root() -> None:
    rows = parse_results(OLD, "old").rows
    assert [(r.collective, r.ranks, r.time_ns, r.wrong) for r in rows] == [
        ("all_gather", 2, 250e3, None),
        ("all_gather", 2, 200e3, None),
    ]
    assert rows[0].busbw_Bps == pytest.approx(1048576 / 250e-6 / 2)


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", "\x1b[32m"])
def test_launcher_prefixes(prefix: str) -> None:
    prefixed = "\n".join(prefix + line for line in NEW.splitlines())
    assert parse_results(prefixed, "x").rows == parse_results(NEW, "x").rows


def test_per_iteration_columns_and_timestamps() -> None:
    head = "size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp"
    line = "1024 256 float sum -1 10.0 0.1 0.1 0 9.0 12.0 11.5 3.0 20.0 0.1 0.1 0 19.0 22.0 21.5 3.0 2026-01-02 03:04:05"
    rows = parse_results(f"# {head}\n{line}\n", "x", ranks=8).rows
    assert [(r.time_ns, r.p99_ns) for r in rows] == [(10e3, 11.5e3), (20e3, 21.5e3)]


def test_the_number_of_ranks_follows_from_the_bandwidths_where_it_is_certain() -> None:
    head = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    sure = "8388608 2097152 float sum -1 100.0 83.89 125.83 0 100.0 83.89 125.83 0"
    assert {r.ranks for r in parse_results(f"{head}\n{sure}\n", "x").rows} == {4}
    unsure = "8 2 float sum -1 10.0 0.00 0.00 0 10.0 0.00 0.00 0"
    with pytest.raises(ResultFileError, match="--ranks N"):
        parse_results(f"{head}\n{unsure}\n", "x")


def test_our_own_table_reads_back() -> None:
    from wirecost.collectives.readers.base import row, tables_of
    from wirecost.collectives.table import read_table

    rows = [
        row(
            name,
            size_bytes=1 << 20,
            count=count,
            dtype="float",
            ranks=4,
            time_us=125.25,
            mode=mode,
            wrong=0,
            root=root,
        )
        for name, count, root in (("all_gather", 65536, None), ("broadcast", 262144, 0))
        for mode in Mode
    ]
    text = "\n".join(line for table in tables_of(rows) for line in read_table(table))
    back = parse_results(text, "x").rows
    assert [(r.collective, r.size_bytes, r.ranks, r.mode, r.time_ns) for r in back] == [
        (r.collective, r.size_bytes, r.ranks, r.mode, r.time_ns) for r in rows
    ]


def _json(**changes: object) -> str:
    device = {"rank": 0, "hostname": "a"}
    return json.dumps(
        {
            "version": 3,
            "args": ["/opt/build/reduce_scatter_perf_mpi", "-b", "8"],
            "config": {"nthreads": 1, "ngpus": 4, "devices": [device, {"rank": 4, "hostname": "b"}]},
            "results": [
                {
                    "size": 4096,
                    "count": 128,
                    "type": "float",
                    "redop": "sum",
                    "root": "    -1",
                    "out_of_place": {"time": 40.0, "alg_bw": 0.1, "bus_bw": 0.08, "nwrong": 0.0},
                    "in_place": None,
                    "out_of_place_per_iter": {"p50_us": 39.0, "p95_us": 44.0, "p99_us": 50.0},
                }
            ],
        }
        | changes
    )


def test_json() -> None:
    reading = parse_results(_json(), "x")
    (row,) = reading.rows
    assert reading.hosts == 2
    assert (row.collective, row.ranks, row.time_ns, row.wrong) == ("reduce_scatter", 8, 40e3, 0)
    assert (row.p50_ns, row.p95_ns, row.p99_ns) == (39e3, 44e3, 50e3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "{",
        '{"results": 3}',
        _json(args=[]),
        _json(results=[]),
        _json(config={}),
        "# OSU MPI Latency Test v5\n",
    ],
)
def test_files_that_hold_no_results_are_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text(text)
    with pytest.raises(ResultFileError) as refusal:
        read_results(path)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    ("title", "column", "line", "ranks", "collective", "size", "time_ns"),
    [
        ("Allreduce Latency Test", "Avg Latency(us)", "1024  12.5", 4, "all_reduce", 1024, 12500),
        (
            "Allgather Latency Test",
            "Avg Latency(us)",
            "1024  12.5  10.0  15.0  1000",
            4,
            "all_gather",
            4096,
            12500,
        ),
        ("All-to-All Personalized Exchange Latency Test", "Avg Latency(us)", "8  3.0", 4, "all_to_all", 32, 3000),
        ("Broadcast Latency Test", "Avg Latency(us)", "8  3.0", 4, "broadcast", 8, 3000),
        ("Latency Test", "Latency (us)", "64  2.0", None, "send_recv", 64, 2000),
        ("Bandwidth Test", "Bandwidth (MB/s)", "1000000  500.0", None, "send_recv", 1000000, 2e6),
        (
            "Bi-Directional Bandwidth Test",
            "Bandwidth (MB/s)",
            "1000000  500.0",
            None,
            "send_recv_bidirectional",
            1000000,
            4e6,
        ),
    ],
)
def test_osu(
    title: str, column: str, line: str, ranks: int | None, collective: str, size: int, time_ns: float
) -> None:
    (row,) = parse_results(OSU.format(title, column, line), "x", ranks=ranks).rows
    assert (row.collective, row.size_bytes, row.time_ns) == (collective, size, pytest.approx(time_ns))


def test_osu_does_not_tell_ranks() -> None:
    with pytest.raises(ResultFileError, match="--ranks N"):
        parse_results(OSU.format("Allreduce Latency Test", "Avg Latency(us)", "8 3.0"), "x")


@given(
    st.text(max_size=300),
    st.sampled_from([NEW, OLD, _json(), OSU.format("Latency Test", "Latency (us)", "64 2.0")]),
    st.data(),
)
def test_no_text_breaks_a_reader(noise: str, good: str, data: st.DataObject) -> None:
    """Only results with sane numbers, or one clear refusal."""
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    text = good[:start] + noise + good[end:]
    try:
        reading = parse_results(text, "x")
    except WirecostError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert reading.rows
    for row in reading.rows:
        assert row.time_ns > 0
        assert row.ranks > 1
        assert row.size_bytes >= 0


def test_bandwidths_that_are_zero_limit_no_number_of_ranks() -> None:
    nothing = Printed(0.0, 0.0)
    assert ratio_ranks("all_reduce", [(nothing, nothing), (nothing, Printed(1.0, 0.005))]) is None
