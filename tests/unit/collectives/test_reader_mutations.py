"""A thousand mutated results of each kind: unrelated lines change nothing; damage gives less or a refusal."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.nccl_tests import FACTORS, SIZES, table, times
from wirecost.collectives.readers import Reading, ResultFileError, parse_results
from wirecost.collectives.result import Row

MUTATIONS = 1000  # of each kind of results
RANKS = 8
UNRELATED = (
    "",
    "nodea:1234:1290 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM",
    "nodea:1234:1290 [3] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 3 busId 1000 - Init COMPLETE",
    "nodea:1234:1234 [0] NCCL INFO cudaDriverVersion 12040",
    "[2026-01-02 03:04:05,678] [INFO] [engine.py:10:step] step=10, loss=2.34, lr=1e-4",
    "iteration 100/ 1000 | consumed samples: 6400 | elapsed time per iteration (ms): 812.3 |",
    "srun: job 4711 queued and waiting for resources",
    "WARNING: Open MPI accepted a TCP connection from what appears to be a",
    "Rank 3 of 8 is ready",
    "{",
    "OMP: Info #276: omp_set_nested routine deprecated",
)
REMOVABLE = ("# Avg bus bandwidth", "#", "# nccl-tests version")


def _osu() -> str:
    rows = [f"{size:<12}{times(size, 1.75, 300.0, 25.0)[0]:>20.2f}" for size in SIZES]
    return "\n".join(["# OSU MPI Allreduce Latency Test v7.4", "# Size       Avg Latency(us)", *rows]) + "\n"


def _json() -> str:
    results = []
    for size in SIZES:
        time, algbw, busbw = times(size, 1.75, 300.0, 25.0)
        cells = {"time": time, "alg_bw": algbw, "bus_bw": busbw, "nwrong": 0}
        results.append(
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "redop": "sum",
                "out_of_place": cells,
                "in_place": cells,
            }
        )
    devices = [{"rank": k, "hostname": "nodea", "device_info": "NVIDIA H100 80GB HBM3"} for k in range(RANKS)]
    return json.dumps(
        {
            "version": 3,
            "args": ["./all_reduce_perf"],
            "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
            "results": results,
        },
        indent=1,
    )


def _old() -> str:
    """Without the columns redop and root, with the largest difference instead of a count."""
    lines = []
    for line in table().splitlines():
        if line.startswith("   "):
            size, count, dtype, _, _, *rest = line.split()
            lines.append("  ".join([size, count, dtype, *rest]).replace("  0", "  0e+00"))
        elif "Collective test" not in line and "nccl-tests version" not in line:
            lines.append(line.replace(" redop    root", "").replace("#wrong", " error").replace(" Group  0", ""))
    return "\n".join(["$ ./build/all_reduce_perf -b 64K -e 128M -f 2", *lines]) + "\n"


KINDS = {
    "text": table(),
    "old text": _old(),
    "mpirun": "".join(f"[1,{k % 3}]<stdout>:{line}\n" for k, line in enumerate(table().splitlines())),
    "docker": "".join(
        json.dumps({"log": f"{line}\n", "stream": "stdout"}) + "\n" for line in table().splitlines()
    ),
    "osu": _osu(),
    "json": _json(),
}


def read(text: str) -> Reading:
    return parse_results(text, "x", ranks=RANKS)


def verdict(text: str) -> tuple[object, ...]:
    reading = read(text)
    return (
        reading.ignored,
        reading.corrupt,
        [(t.collective, t.ranks, t.groups, t.hosts, t.dtype, t.rows) for t in reading.tables],
    )


def wrap(kind: str, line: str, dice: random.Random) -> str:
    if kind == "mpirun":
        return f"[1,{dice.randrange(3)}]<stdout>:{line}"
    return json.dumps({"log": f"{line}\n", "stream": "stderr"}) if kind == "docker" else line


def body_of(kind: str, line: str) -> str:
    if kind == "mpirun":
        return line.partition(":")[2]
    return str(json.loads(line)["log"]).rstrip("\n") if kind == "docker" else line


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "json"])
def test_unrelated_lines_change_nothing(kind: str) -> None:
    right = verdict(KINDS[kind])
    dice = random.Random(1)
    for _ in range(MUTATIONS):
        lines = []
        for line in KINDS[kind].splitlines():
            if dice.random() < 0.1:
                lines.append(wrap(kind, dice.choice(UNRELATED), dice))
            if dice.random() > 0.5 or not body_of(kind, line).startswith(REMOVABLE[2]):
                removable = body_of(kind, line) == "#" or body_of(kind, line).startswith(REMOVABLE[0])
                lines += [] if removable and dice.random() < 0.3 else [line]
        text = "\n".join(lines) + "\n"
        assert verdict(text) == right, text


def test_unrelated_keys_change_nothing() -> None:
    right = verdict(KINDS["json"])
    dice = random.Random(2)
    for _ in range(MUTATIONS):
        data = json.loads(KINDS["json"])
        places = [data, data["config"], *data["config"]["devices"], *data["results"]]
        for place in dice.sample(places, 3):
            place[f"key{dice.randrange(99)}"] = dice.choice([None, -1, 1e308, "x" * 100, [], {"time": 1.0}])
        data.pop("version", None) if dice.random() < 0.5 else None
        assert verdict(json.dumps(data)) == right


def _damaged(lines: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(lines))
    line = lines[at]
    column = dice.randrange(len(line) + 1)
    match dice.randrange(5):
        case 0:
            return [*lines[:at], *lines[at + 1 :]]
        case 1:
            return [*lines[:at], line[:column], *lines[at + 1 :]]
        case 2:
            return [
                *lines[:at],
                line[:column] + chr(dice.randrange(33, 127)) + line[column + 1 :],
                *lines[at + 1 :],
            ]
        case 3:
            other = lines[dice.randrange(len(lines))]
            return [*lines[:at], line[:column] + other[dice.randrange(len(other) + 1) :], *lines[at + 1 :]]
        case _:
            return [*lines[:at], line[:column], line[column:], *lines[at + 1 :]]


def _is_one_of(row: Row, right: dict[int, float]) -> bool:
    """Whether a row is as right as printing allows: 1 % of its time."""
    return row.size_bytes in right and abs(row.time_ns / right[row.size_bytes] - 1) < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_damage_gives_less_or_a_refusal(kind: str) -> None:
    text = KINDS[kind]
    right = {row.size_bytes: row.time_ns for row in read(text).rows}
    checked = kind != "osu"  # whose only number of a row nothing else confirms
    dice = random.Random(3)
    refused = 0
    for _ in range(MUTATIONS):
        damaged = "\n".join(_damaged(text.splitlines(), dice)) + "\n"
        try:
            reading = read(damaged)
        except ResultFileError as error:
            assert len(str(error)) < 500 and "\n" not in str(error)
            refused += 1
            continue
        assert reading.rows
        for row in reading.rows if checked else ():
            assert (row.collective, row.ranks) == ("all_reduce", RANKS) and _is_one_of(row, right), damaged
    assert refused < 0.8 * MUTATIONS


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=300),
    st.lists(st.sampled_from([*table().splitlines(), *_osu().splitlines(), *_json().splitlines()]), max_size=30),
)
def test_anything_else_is_a_reading_or_a_refusal(text: str, lines: list[str]) -> None:
    for candidate in (text, "\n".join(lines), text + "\n".join(lines)):
        try:
            reading = parse_results(candidate, "x", ranks=2)
        except ResultFileError as error:
            assert "\n" not in str(error)
        else:
            assert reading.rows


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FACTORS)),
    st.integers(2, 4096),
    st.floats(1.0, 900.0),
)
def test_the_number_of_ranks_in_a_table_is_never_contradicted_by_its_own_rows(
    program: str, ranks: int, busbw: float
) -> None:
    reading = parse_results(table(["a"] * ranks, program=program, busbw=busbw), "x")
    assert reading.ignored == 0 and {t.ranks for t in reading.tables} == {ranks}
    fast = [r for r in reading.rows if (r.busbw_Bps or 0.0) > 0.95 * busbw * 1e9]
    assert all((r.busbw_Bps or 0.0) <= 1.01 * busbw * 1e9 for r in fast)
