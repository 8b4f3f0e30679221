"""Whole outputs of nccl-tests with what can go wrong in them: several runs, groups, CPU time, wrong results."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.nccl_tests import HEADING, SIZES, body, devices, table
from wirecost.collectives.readers import Reading, ResultFileError, parse_results
from wirecost.collectives.request import Mode


def read(text: str, ranks: int | None = None) -> Reading:
    return parse_results(text, "x", ranks=ranks)


def best(reading: Reading, k: int = 0) -> float:
    return round(max(r.busbw_Bps or 0.0 for r in reading.tables[k].rows) * 1e-9, 1)


def test_a_whole_run() -> None:
    reading = read(table())
    (only,) = reading.tables
    assert (only.collective, only.ranks, only.hosts, only.span, only.gpu) == (
        "all_reduce",
        8,
        1,
        1,
        "NVIDIA H100 80GB HBM3",
    )
    assert (len(only.rows), reading.ignored, reading.diagnostics, reading.corrupt) == (2 * len(SIZES), 0, (), ())
    assert best(reading) == 290.7


def test_cpu_time_under_its_heading_is_replaced_by_size_over_algbw() -> None:
    text = table().replace(" time ", "cputime").replace("(us)", "(us)")
    lines = [
        line if not line.startswith("   ") else _with_time(line, "1.23")
        for line in text.splitlines()
        if "cputime" in line or line
    ]
    reading = read("\n".join(lines))
    assert best(reading) == pytest.approx(290.7, abs=0.1)
    assert "-C" in reading.diagnostics[0].message
    assert {round(r.time_ns) for r in reading.rows} != {1230}


def _with_time(line: str, time: str) -> str:
    words = line.split()
    words[5] = words[9] = time
    return "  ".join(words)


def test_cpu_time_without_its_heading_is_refused() -> None:
    lines = [_with_time(line, "1.23") if line.startswith("   ") else line for line in table().splitlines()]
    with pytest.raises(ResultFileError, match="time and algbw disagree"):
        read("\n".join(lines))


def test_groups_at_once_are_told_by_the_device_list() -> None:
    hosts = ["nodea"] * 4 + ["nodeb"] * 4
    reading = read(table(hosts, groups=[0, 1, 2, 3, 0, 1, 2, 3], busbw=40))
    (only,) = reading.tables
    assert (only.ranks, only.groups, only.hosts, only.span) == (2, 4, 2, 2)
    assert "NCCL_TESTS_SPLIT" in reading.diagnostics[0].message
    (only,) = read(table(hosts, groups=[0, 0, 0, 0, 1, 1, 1, 1])).tables
    assert (only.ranks, only.groups, only.hosts, only.span) == (4, 2, 2, 1)


def test_groups_of_several_sizes_are_refused() -> None:
    with pytest.raises(ResultFileError, match="groups of 1 to 3 ranks"):
        read(table(["a"] * 4, groups=[0, 1, 1, 1]))


def test_a_device_list_that_busbw_contradicts_is_refused() -> None:
    text = "\n".join([*devices(["a"] * 16), *HEADING, *body(2)])
    with pytest.raises(ResultFileError, match="lists 16 ranks, but busbw over algbw is that of 2 ranks"):
        read("# Collective test starting: all_reduce_perf\n" + text)


def test_what_the_user_says_is_held_against_the_table() -> None:
    alone = "\n".join([*HEADING, *body(8)])
    assert read(alone).tables[0].ranks == 8
    assert read(alone, 8).tables[0].ranks == 8
    with pytest.raises(ResultFileError, match="--ranks 16 was given, but busbw over algbw is that of 8 ranks"):
        read(alone, 16)
    with pytest.raises(ResultFileError, match="--ranks 16 contradicts the 8 ranks that it lists"):
        read(table(), 16)


def test_one_row_with_another_ratio_is_left_out_and_counted() -> None:
    lines = table().splitlines()
    at = next(k for k, line in enumerate(lines) if line.split()[:1] == [str(SIZES[-1])])
    words = lines[at].split()
    words[7] = words[11] = f"{float(words[7]) / 2:.2f}"
    lines[at] = "  ".join(words)
    reading = read("\n".join(lines))
    assert reading.ignored == 2 and reading.tables[0].ranks == 8
    assert max(r.size_bytes for r in reading.rows) == SIZES[-2]


def test_processes_that_ran_alone_are_refused() -> None:
    lonely = "\n".join(
        line
        for _ in range(4)
        for line in (
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1",
            *devices(["a"]),
        )
    )
    rows = "    67108864      16777216     float     sum      -1   120.20  558.31    0.00       0    11.20 5991.86    0.00       0"
    for ranks in (None, 2):
        with pytest.raises(ResultFileError, match="each of 4 processes ran alone with 1 rank"):
            read("# Collective test starting: all_reduce_perf\n" + "\n".join([lonely, *HEADING, rows]), ranks)


def test_wrong_results_in_scientific_notation() -> None:
    lines = table(footer="2 FAILED").splitlines()
    lines = [line[:-1] + "1e+06" if line.split()[:1] == [str(SIZES[3])] else line for line in lines]
    reading = read("\n".join(lines))
    assert reading.corrupt[0] == "the benchmark reports out of bounds values: 2 FAILED"
    assert "1000000 elements are wrong; 1 of 24 results are wrong" in reading.corrupt[1]


def test_failed_footer_alone_is_corrupt() -> None:
    assert read(table(footer="3 FAILED")).corrupt
    assert not read(table()).corrupt


def test_several_runs_in_one_file() -> None:
    two = table(["a"] * 8 + ["b"] * 8, busbw=100) + table(program="all_gather", busbw=200)
    reading = read(two)
    assert [(t.collective, t.ranks, t.hosts) for t in reading.tables] == [
        ("all_reduce", 16, 2),
        ("all_gather", 8, 1),
    ]
    assert reading.hosts is None


def test_several_runs_without_the_lines_that_name_them() -> None:
    text = "\n".join(line for line in (table() + table(["a"] * 2)).splitlines() if "Collective test" not in line)
    assert [t.ranks for t in read(text).tables] == [8, 2]


def test_types_of_one_run_are_tables_of_their_own() -> None:
    lines = table().splitlines()
    end = next(k for k, line in enumerate(lines) if "Out of bounds" in line)
    reading = read("\n".join([*lines[:end], *body(8, dtype="bfloat16", busbw=280), *lines[end:]]))
    assert [t.dtype for t in reading.tables] == ["float", "bfloat16"]
    assert (best(reading), best(reading, 1)) == (290.7, 271.9)


def test_cycles_are_one_table() -> None:
    lines = table().splitlines()
    end = next(k for k, line in enumerate(lines) if "Out of bounds" in line)
    reading = read("\n".join([*lines[:end], *body(8), *body(8), *lines[end:]]))
    assert len(reading.tables) == 1 and len(reading.rows) == 6 * len(SIZES)


def test_a_table_in_place_only() -> None:
    heading = [
        "#                                                               in-place",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
    ]
    rows = ["  ".join(line.split()[:9]) for line in body(8)]
    reading = read("\n".join([*devices(["a"] * 8), *heading, *rows]))
    assert {r.mode for r in reading.rows} == {Mode.IN_PLACE} and len(reading.rows) == len(SIZES)


def test_milliseconds_are_told_by_the_bandwidth() -> None:
    heading = (
        "#  bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res"
    )
    rows = []
    for line in body(2, busbw=20):
        size, count, dtype, op, _, time, algbw, busbw, *_ = line.split()
        mine = [f"{float(time) / 1e3:.3f}", algbw, busbw, "0e+00"]
        rows.append("  ".join([size, count, dtype, op, *mine, *mine]))
    text = "\n".join([*(line.replace("Group  0 ", "") for line in devices(["a", "a"])), heading, *rows])
    reading = read(f"$ ./build/all_reduce_perf -b 64K\n{text}")
    assert (best(reading), [d.code for d in reading.diagnostics]) == (
        pytest.approx(19.9, abs=0.1),
        ["times_in_ms"],
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda k, line: f"[1,0]<stdout>:{line}",
        lambda k, line: f"[1,{k % 8}]<stdout>: {line}",
        lambda k, line: f" 0: {line}",
        lambda k, line: f"[{k % 8}] {line}",
        lambda k, line: f"2026-01-02T03:04:{k % 60:02}.123456789Z {line}",
        lambda k, line: f"[pod/nccl-launcher-x7/launcher] {line}",
        lambda k, line: f"\x1b[32m{line}\x1b[0m",
        lambda k, line: json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-02T03:04:05Z"}),
        lambda k, line: json.dumps({"@timestamp": 1, "message": line}),
        lambda k, line: f"{line}\r",
    ],
    ids=["ompi", "ompi-ranks", "srun", "hydra", "timestamps", "kubectl", "colours", "docker", "json", "crlf"],
)
def test_wrappers(wrap: Callable[[int, str], str]) -> None:
    text = "\n".join(wrap(k, line) for k, line in enumerate(table().splitlines()))
    assert read(text).rows == read(table()).rows


def test_markdown_that_ate_the_hashes() -> None:
    assert read(table().replace("#wrong", "wrong").replace("#", "")).rows == read(table()).rows


def test_rows_that_a_log_line_cut_are_counted() -> None:
    lines = table().splitlines()
    at = next(k for k, line in enumerate(lines) if line.split()[:1] == [str(SIZES[4])])
    cut = lines[at]
    lines[at : at + 1] = [f"{cut[:70]}nodea:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", cut[70:]]
    reading = read("\n".join(lines))
    assert reading.ignored == 1 and SIZES[4] not in {r.size_bytes for r in reading.rows}


def test_lost_device_lines_leave_the_hosts_open() -> None:
    hosts = ["a"] * 8 + ["b"] * 8
    text = "\n".join(line for line in table(hosts, busbw=100).splitlines() if not line.startswith("#  Rank  9"))
    (only,) = read(text).tables
    assert (only.ranks, only.hosts) == (16, None)


def test_a_collective_that_nothing_names_is_refused() -> None:
    unnamed = [line.replace(" sum ", " none ") for line in body(8)]
    with pytest.raises(ResultFileError, match="the collective is unknown"):
        read("\n".join([*devices(["a"] * 8), *HEADING, *unnamed]))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n 65536 5000 23000 22990", "perftest"),
        ("#      Intel(R) MPI Benchmarks 2021.3\n #bytes #repetitions t_min[usec]", "Intel MPI Benchmarks"),
        ("nvbandwidth Version: v0.7\nmemcpy CE CPU(row) -> GPU(column) bandwidth", "nvbandwidth"),
        ("[ ID] Interval           Transfer     Bitrate\n[  5] 0.00-1.00 sec 1.1 GBytes", "iperf"),
        ('{"end": {"sum_received": {"bits_per_second": 1e9}}}', "iperf"),
        ("   size(B)    count(elems)     type    time:avg(us)    algbw(GB/s)", "nccom-test"),
    ],
)
def test_other_programs_are_refused_by_name(text: str, program: str) -> None:
    with pytest.raises(ResultFileError, match=f"this is {program}.* which wirecost can't read"):
        read(text)


def test_no_table_at_all() -> None:
    with pytest.raises(ResultFileError, match="no result line"):
        read("hello\n")
    with pytest.raises(ResultFileError, match="not readable as JSON"):
        read('{"results": [')
