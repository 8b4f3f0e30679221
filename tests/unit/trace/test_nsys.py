"""Nsight Systems exports, made here in the documented schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.tracefiles import make_job
from wirecost.trace import TraceError, read

PID = 0x1000000  # a globalPid keeps its lower 24 bits for threads


def export(path: Path, processes: int = 1, **options: Any) -> Path:
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            globalPid INTEGER, bytes INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
            globalTid INTEGER);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_bf16(args)'), (3, 'step');
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1727743122000000000, '', '');
    """)
    for p in range(processes):
        pid, late = (p + 1) * PID, 10 * p
        for step in (0, 1000):
            rows = [(step, step + 400, 1), (step + 300 + late, step + 700, 2)]
            db.executemany(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, ?, 0, ?, ?, ?)",
                [(s, e, p, 6 + n, pid, n, n) for s, e, n in rows],
            )
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 1, 9, 0, ?, 64, 1)",
                (step + 600, step + 800, p, pid),
            )
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 3, ?)", (step, step + 900, pid + 17))
        db.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 34, 'mark', NULL, ?)", (pid + 17,))
    for statement in options.get("also", ()):
        db.execute(statement)
    db.commit()
    db.close()
    return path


def test_an_export_gives_exact_parts_and_says_what_is_inferred(tmp_path: Path) -> None:
    (trace,) = read(export(tmp_path / "rank3.sqlite")).traces
    assert (trace.rank, trace.rank_source, trace.device) == (3, "file name", "gpu")
    assert trace.parts is not None
    assert trace.parts.model_dump() == {
        "window_ns": 1800, "compute_only_ns": 600, "overlapped_ns": 200, "exposed_comm_ns": 600,
        "exposed_memory_ns": 200, "idle_ns": 200, "unknown_ns": 0,
    }  # fmt: skip
    assert [(i.window.name, i.window.source, i.parts.window_ns) for i in trace.iterations] == [
        ("step#0", "cpu_annotation", 900),
        ("step#1", "cpu_annotation", 900),
    ]
    assert {p.code: p.count for p in trace.diagnostics} == {
        "nsys_inferred": 2,
        "bytes_unknown": 2,
        "window_inferred": 2,
    }
    assert trace.start_ns == 1727743122000000000


def test_each_process_of_an_export_is_a_rank(tmp_path: Path) -> None:
    traces = read(export(tmp_path / "node.sqlite", processes=2))
    assert [t.rank for t in traces.traces] == [0, 1]
    assert [m.start_skew_ns for m in traces.matched] == [10, 10]
    assert any(p.code == "rank_unknown" for p in traces.run_diagnostics)
    assert [len(t.iterations) for t in traces.traces] == [2, 2]


def test_rows_that_cannot_be_are_counted(tmp_path: Path) -> None:
    insert = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, 0, 16777216, {}, 1)"
    bad = [("NULL", 5, 1), ("'x'", 5, 1), (9, 5, 1), (2**61 + 1, 2**61 + 5, 1), (5, 2**52, 1), (5, 9, 77)]
    also = [insert.format(*b) for b in bad] + [
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1)",
    ]
    (trace,) = read(export(tmp_path / "rank0.sqlite", also=also)).traces
    found = {p.code: p.count for p in trace.diagnostics}
    assert (found["bad_time"], found["negative_duration"], found["out_of_range"]) == (2, 1, 2)
    assert (found["unnamed_event"], found["graphs_opaque"]) == (1, 1)


def test_other_databases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (a)")
    db.commit()
    db.close()
    with pytest.raises(TraceError, match="Nsight Systems"):
        read(path)
    export(tmp_path / "y.sqlite")
    whole = (tmp_path / "y.sqlite").read_bytes()
    (tmp_path / "z.sqlite").write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(TraceError, match=r"z\.sqlite"):
        read(tmp_path / "z.sqlite")


def test_each_process_can_be_told_its_rank_as_the_refusal_says(tmp_path: Path) -> None:
    export(tmp_path / "node.sqlite", processes=2)
    (made,) = make_job(1, 1)
    (tmp_path / "rank0.json").write_bytes(made.text)
    with pytest.raises(TraceError, match=r"--rank 'node\.sqlite \(process 0\)=3'"):
        read(tmp_path)
    traces = read(tmp_path, ranks=["node.sqlite (process 0)=3", "node.sqlite (process 1)=4"])
    assert [t.rank for t in traces.traces] == [0, 3, 4]


def test_more_processes_than_a_node_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="more than 256 processes ran kernels"):
        read(export(tmp_path / "node.sqlite", processes=1000))
    assert len(read(export(tmp_path / "some.sqlite", processes=64)).traces) == 64


COMPUTED = "UPDATE sqlite_master SET sql = replace(sql, '{} {}', '{} TEXT AS (printf(''%.*c'', 10000000, ''x''))')"


def test_computed_columns_are_not_computed(tmp_path: Path) -> None:
    columns = [("value", "TEXT"), ("demangledName", "INTEGER"), ("shortName", "INTEGER")]
    changes = ["PRAGMA writable_schema = 1", *(COMPUTED.format(name, kind, name) for name, kind in columns)]
    traces = read(export(tmp_path / "rank0.sqlite", also=changes))
    (problem,) = [p for p in traces.traces[0].diagnostics if p.code == "unnamed_event"]
    assert problem.count == 4


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW {} AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
        "SELECT x AS start, x + 1 AS end, 0 AS deviceId, 0 AS streamId, 'k' AS demangledName FROM c",
        "CREATE VIRTUAL TABLE {} USING fts5(start, end, demangledName)",
    ],
)
def test_views_and_virtual_tables_are_no_tables(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "rank0.sqlite"
    db = sqlite3.connect(path)
    try:
        db.execute(statement.format("CUPTI_ACTIVITY_KIND_KERNEL"))
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no full-text search")
    db.commit()
    db.close()
    with pytest.raises(TraceError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        read(path)


def test_more_rows_or_text_than_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wirecost.trace import nsys_database

    path = export(tmp_path / "rank0.sqlite")
    for name, value, words in (
        ("_ROW_BYTES", 10**9, "more rows than a file of its size can hold"),
        ("_LEAST_TEXT_BYTES", -(10**6), "more text than a file of its size can hold"),
        ("_LEAST_STEPS", -(10**9), "interrupted"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(nsys_database, name, value)
            patch.setattr(nsys_database, "_LEAST_ROWS", 0 if name == "_ROW_BYTES" else 1000)
            patch.setattr(nsys_database, "_STEPS", 1)
            with pytest.raises(TraceError, match=words):
                read(path)
    assert read(path).traces


@pytest.mark.needs_shared
def test_names_that_are_no_utf8(shared: Path) -> None:
    folder = shared / "cases" / "reliability" / "nsys-utf8"
    with pytest.raises(TraceError, match="its schema is no UTF-8 text"):
        read(folder / "a.sqlite")
    with pytest.raises(TraceError, match="malformed database schema"):
        read(folder / "view-as-table.sqlite")
    assert read(folder / "names.sqlite").traces


def with_host(path: Path, copies: list[tuple[int, int | None, int | None]]) -> Path:
    """An export whose kernels have launches: the device lags 5 us behind a host that marks steps of 1000 ns."""
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER,
            gridZ INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, srcDeviceId INTEGER, dstDeviceId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
            correlationId INTEGER, nameId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
            globalTid INTEGER);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'some_kernel'), (4, 'cudaLaunchKernel_v7000');
    """)
    for p in (1, 2):  # two processes with the same correlation ids
        pid, tid = p * PID, p * PID + 17
        for k in range(4):
            at = 1000 * k + (p - 1) * 7
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, ?)", (at, at + 999, f"iteration {k}", tid)
            )
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 'ncclAllReduce', NULL, ?)", (at + 200, at + 220, tid)
            )
            for n, (name, begin) in enumerate(((1, 100), (2, 210))):
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 4)",
                    (at + begin, at + begin + 5, tid, 10 * k + n + 1),
                )
                start = at + 5000 + 500 * n
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, 8, 1, 1)",
                    (start, start + 450, p - 1, 7 + n, 10 * k + n + 1, pid, name),
                )
        for n, (kind, source, destination) in enumerate(copies):
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 9, 0, ?, ?, ?, ?)",
                (9000 + 10 * n, 9005 + 10 * n, p - 1, pid, kind, source, destination),
            )
    db.commit()
    db.close()
    return path


def test_steps_come_from_launches_and_operations_from_what_nccl_annotates(tmp_path: Path) -> None:
    traces = read(with_host(tmp_path / "node.sqlite", []))
    assert len(traces.traces) == 2
    for trace in traces.traces:
        assert [(i.window.name, i.window.source) for i in trace.iterations] == [
            (f"iteration {k}", "launches") for k in range(4)
        ]
        assert [i.parts.window_ns for i in trace.iterations] == [1000, 1000, 1000, 950]
        assert [trace.calls.ops[o] for o in trace.calls.op] == ["all_reduce"] * 4
        assert {u.why for u in trace.kernels if u.communicates} == {"operator: ncclAllReduce"}


def test_copies_have_kinds(tmp_path: Path) -> None:
    copies = [(1, None, None), (2, None, None), (8, None, None), (10, None, None), (8, 0, 1), (99, None, None)]
    (trace, _) = read(with_host(tmp_path / "node.sqlite", copies)).traces
    names = {u.name: u.count for u in trace.kernels if u.kind == "copy"}
    assert names == {"Memcpy HtoD": 1, "Memcpy DtoH": 1, "Memcpy DtoD": 1, "Memcpy PtoP": 2, "Memcpy": 1}
    assert "looks_like_communication" in {p.code for p in trace.diagnostics}


def test_operator_ranges_are_no_iterations(tmp_path: Path) -> None:
    ranges = [
        f"INSERT INTO NVTX_EVENTS VALUES ({s}, {s + 1000}, 59, 'aten::mm, op_id = {s}', NULL, {PID + 17})"
        for s in (0, 1000)
    ]
    also = ["DELETE FROM NVTX_EVENTS", *ranges]
    (trace,) = read(export(tmp_path / "rank0.sqlite", also=also)).traces
    assert trace.iterations == []
