"""A `AnsweredTraces` as plain rows: for JSON, DataFrames, CSV and Parquet. Units are in the names."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirecost.address_space import check_room_for_polars
from wirecost.breakdown import Parts
from wirecost.csv_text import rows_to_csv
from wirecost.diagnostics import Diagnostic, loses_data
from wirecost.errors import one_of
from wirecost.trace.source import TraceError

if TYPE_CHECKING:
    import polars

    from wirecost.trace.answered_traces import AnsweredTraces
    from wirecost.trace.collective_rows import CollectiveRow
    from wirecost.trace.matched import Matched

SCHEMA_VERSION = 2

PARTS = (
    "window_ns", "compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns",
    "compute_ns", "comm_ns",
)  # fmt: skip

Row = dict[str, Any]
_INT, _FLOAT, _TEXT, _FLAG = "Int64", "Float64", "String", "Boolean"
_PARTS_SCHEMA = dict.fromkeys(PARTS, _INT) | {"comm_fraction": _FLOAT, "overlap": _FLOAT}


def parts_row(parts: Parts) -> dict[str, int]:
    return {name: getattr(parts, name) for name in PARTS}


def _shares(parts: Parts | None) -> Row:
    if parts is None:
        return dict.fromkeys(_PARTS_SCHEMA)
    return {**parts_row(parts), "comm_fraction": parts.comm_fraction, "overlap": parts.overlap}


def _ranks(s: AnsweredTraces) -> list[Row]:
    return [
        {
            "rank": t.rank, "file": t.file, "rank_source": t.rank_source, "world_size": t.world_size,
            "backend": t.backend, "device": t.device, "start_ns": t.start_ns, **_shares(t.parts),
            "iterations": len(t.iterations), "collectives": len(t.calls), "events": t.events,
        }
        for t in s.traces
    ]  # fmt: skip


def _iterations(s: AnsweredTraces) -> list[Row]:
    return [
        {
            "rank": t.rank, "name": i.window.name, "window_source": i.window.source, "cut": i.window.cut,
            "start_ns": i.window.start_ns, **_shares(i.parts),
        }
        for t in s.traces
        for i in t.iterations
    ]  # fmt: skip


def collective_row(r: CollectiveRow) -> Row:
    return {name: getattr(r, name) for name in r.__struct_fields__}


def _collectives(s: AnsweredTraces) -> list[Row]:
    return [collective_row(r) for r in s.collective_rows]


def _calls(s: AnsweredTraces) -> list[Row]:
    def known(value: Any) -> int | None:
        return int(value) if value >= 0 else None

    return [
        {
            "rank": t.rank, "op": c.ops[c.op[i]], "group": c.groups[c.group[i]],
            "iteration": t.iterations[c.iteration[i]].window.name if c.iteration[i] >= 0 else None,
            "start_ns": int(c.start_ns[i]), "duration_ns": int(c.end_ns[i] - c.start_ns[i]),
            "exposed_ns": int(c.exposed_ns[i]), "wait_ns": known(wait[i]), "bytes": known(c.bytes[i]),
            "group_size": known(c.group_size[i]),
        }
        for t, wait in zip(s.traces, s.waits, strict=True)
        for c in [t.calls]
        for i in range(len(c))
    ]  # fmt: skip


def skew_row(m: Matched) -> Row:
    duration = m.duration_ns
    return {
        "op": m.op, "group": m.group, "index": m.index, "iteration": m.iteration, "ranks": len(m.ranks),
        "bytes": m.bytes, "start_skew_ns": m.start_skew_ns, "end_skew_ns": m.end_skew_ns,
        "duration_min_ns": int(duration.min()), "duration_max_ns": int(duration.max()),
        "last_rank": m.last_rank, "cost_ns": m.cost_ns, "delay_ns": m.delay_ns, "basis": m.basis, "first": m.first,
        "bubble": m.bubble,
    }  # fmt: skip


def _skew(s: AnsweredTraces) -> list[Row]:
    return [skew_row(m) for m in s.matched]


def _loss_row(x: Any) -> Row:
    row = {name: getattr(x, name) for name in x.__struct_fields__ if name != "place"}
    return row | {"ranks": " ".join(map(str, x.ranks))}


def _answer(s: AnsweredTraces) -> Row:
    row = {name: getattr(s.answer, name) for name in s.answer.__struct_fields__}
    place = s.answer.place
    return row | {"place": None if place is None else {n: getattr(place, n) for n in place.__struct_fields__}}


def _structs(records: Sequence[Any]) -> list[Row]:
    return [{name: getattr(x, name) for name in x.__struct_fields__} for x in records]


def _kernels(s: AnsweredTraces) -> list[Row]:
    return [{"rank": t.rank, **row} for t in s.traces for row in _structs(t.kernels)]


def _diagnostics(s: AnsweredTraces) -> list[Row]:
    rows = [{"rank": t.rank, "file": t.file, **d} for t in s.traces for d in _diagnostic_rows(t.diagnostics)]
    return rows + [{"rank": None, "file": None, **d} for d in _diagnostic_rows(s.run_diagnostics)]


def _diagnostic_rows(diagnostics: Sequence[Diagnostic]) -> list[Row]:
    return [
        {
            "code": d.code, "severity": d.severity.value, "count": d.count, "loss": loses_data(d),
            "message": d.message, "remedy": d.remedy,
        }
        for d in diagnostics
    ]  # fmt: skip


def _without_stragglers(s: AnsweredTraces) -> Row:
    found = s.straggler_costs
    return {**_structs([found])[0], "costs": _structs(found.costs), "sentence": found.sentence}


def _former_problems(diagnostics: Sequence[Diagnostic]) -> list[Row]:
    """Returns diagnostics as the `problems` of schema version 1."""
    return [{"code": d.code, "count": d.count, "loss": loses_data(d), "message": d.message} for d in diagnostics]


def _lost_time(s: AnsweredTraces) -> list[Row]:
    return [{**x.diagnostic.as_json(), "share": x.share, "mean_ns": x.mean_ns} for x in s.lost_time]


def _former_findings(s: AnsweredTraces) -> list[Row]:
    """Returns the lost time as the `findings` of schema version 1."""
    return [
        {
            "code": x.code, "share": x.share, "mean_ns": x.mean_ns, "text": x.diagnostic.message,
            "advice": x.diagnostic.remedy,
        }
        for x in s.lost_time
    ]  # fmt: skip


_TABLES: dict[str, tuple[Callable[[AnsweredTraces], list[Row]], dict[str, str]]] = {
    "ranks": (
        _ranks,
        {"rank": _INT, "file": _TEXT, "rank_source": _TEXT, "world_size": _INT, "backend": _TEXT, "device": _TEXT,
         "start_ns": _INT} | _PARTS_SCHEMA | {"iterations": _INT, "collectives": _INT, "events": _INT},
    ),
    "iterations": (
        _iterations,
        {"rank": _INT, "name": _TEXT, "window_source": _TEXT, "cut": _FLAG, "start_ns": _INT} | _PARTS_SCHEMA,
    ),
    "collectives": (
        _collectives,
        {"rank": _INT, "op": _TEXT, "group": _TEXT, "group_size": _INT, "count": _INT, "bytes": _INT,
         "duration_ns": _INT, "exposed_ns": _INT, "matched": _INT, "wait_ns": _INT, "transfer_ns": _INT,
         "basis": _TEXT, "algbw_Bps": _FLOAT, "busbw_Bps": _FLOAT, "bandwidth_from": _TEXT},
    ),
    "calls": (
        _calls,
        {"rank": _INT, "op": _TEXT, "group": _TEXT, "iteration": _TEXT, "start_ns": _INT, "duration_ns": _INT,
         "exposed_ns": _INT, "wait_ns": _INT, "bytes": _INT, "group_size": _INT},
    ),
    "skew": (
        _skew,
        {"op": _TEXT, "group": _TEXT, "index": _INT, "iteration": _TEXT, "ranks": _INT, "bytes": _INT,
         "start_skew_ns": _INT, "end_skew_ns": _INT, "duration_min_ns": _INT, "duration_max_ns": _INT,
         "last_rank": _INT, "cost_ns": _INT, "delay_ns": _INT, "basis": _TEXT, "first": _FLAG,
         "bubble": _FLAG},
    ),
    "stragglers": (
        lambda s: _structs(s.stragglers),
        {"rank": _INT, "late": _INT, "collectives": _INT, "cost_ns": _INT, "delay_ns": _INT, "passed_on_ns": _INT},
    ),
    "straggler_costs": (
        lambda s: _structs(s.straggler_costs.costs),
        {"of": _TEXT, "name": _TEXT, "cost_ns": _FLOAT, "share": _FLOAT},
    ),
    "imbalance": (
        lambda s: _structs(s.imbalance),
        {"iteration": _TEXT, "ranks": _INT, "mean_ns": _FLOAT, "min_ns": _INT, "max_ns": _INT,
         "slowest_rank": _INT, "excess": _FLOAT},
    ),
    "causes": (
        lambda s: _structs(s.causes),
        {"code": _TEXT, "text": _TEXT, "exposed_ns": _INT, "share": _FLOAT, "calls": _INT, "rank": _INT,
         "host_call": _TEXT},
    ),
    "slowdowns": (
        lambda s: [{"rank": t.rank, **row} for t in s.traces for row in _structs(t.slowdowns)],
        {"rank": _INT, "op": _TEXT, "group": _TEXT, "kernels": _INT, "ratio": _FLOAT, "extra_ns": _INT},
    ),
    "exposed": (
        lambda s: [{k: v for k, v in row.items() if k != "causes"} for row in _structs(s.exposed)],
        {"op": _TEXT, "group": _TEXT, "ordinal": _INT, "bytes": _INT, "exposed_ns": _FLOAT, "duration_ns": _FLOAT,
         "share": _FLOAT, "position": _FLOAT, "samples": _INT, "worst_rank": _INT, "after": _TEXT,
         "before": _TEXT, "cause": _TEXT, "cause_share": _FLOAT, "cause_rank": _INT},
    ),
    "clocks": (
        lambda s: _structs(s.clocks),
        {"rank": _INT, "reference_rank": _INT, "offset_ns": _INT, "drift_ppm": _FLOAT, "scatter_ns": _INT,
         "collectives": _INT, "taken_out": _FLAG},
    ),
    "comm_parts": (
        lambda s: _structs(s.comm_parts),
        {"rank": _INT, "iteration": _TEXT, "window_ns": _INT, "exposed_ns": _INT, "transfer_ns": _INT,
         "wait_ns": _INT, "bubble_ns": _INT, "unknown_ns": _INT},
    ),
    "kernels": (
        _kernels,
        {"rank": _INT, "name": _TEXT, "kind": _TEXT, "communicates": _FLAG, "why": _TEXT, "count": _INT,
         "total_ns": _INT},
    ),
    "losses": (
        lambda s: [_loss_row(x) for x in s.losses],
        {"code": _TEXT, "text": _TEXT, "gain_ns": _FLOAT, "gain_share": _FLOAT, "condition": _TEXT,
         "remedy": _TEXT, "ranks": _TEXT},
    ),
    "diagnostics": (
        _diagnostics,
        {"rank": _INT, "file": _TEXT, "code": _TEXT, "severity": _TEXT, "count": _INT, "loss": _FLAG,
         "message": _TEXT, "remedy": _TEXT},
    ),
}  # fmt: skip

NAMES = tuple(_TABLES)
_ALIASES = {"problems": "diagnostics"}


def table_name(name: str) -> str:
    """Returns the name of a table, with its aliases resolved.

    Raises:
        TraceError: for a table that doesn't exist.
    """
    name = _ALIASES.get(name, name)
    if name not in _TABLES:
        raise TraceError(one_of("table", name, NAMES))
    return name


def column_types(name: str) -> dict[str, str]:
    """Returns the type of each column of a table: Int64, Float64, String or Boolean.

    Raises:
        TraceError: for a table that doesn't exist.
    """
    return dict(_table(name)[1])


def rows_of(s: AnsweredTraces, name: str) -> tuple[list[str], list[Row]]:
    """Returns (columns, rows) of one table as plain values; raises TraceError for a table that doesn't exist."""
    rows, schema = _table(name)
    return list(schema), rows(s)


def frame(s: AnsweredTraces, name: str) -> polars.DataFrame:
    """Returns one table as a polars DataFrame with a fixed schema.

    Raises:
        TraceError: for a table that doesn't exist.
    """
    check_room_for_polars()
    import polars

    rows, schema = _table(name)
    types = {column: getattr(polars, kind) for column, kind in schema.items()}
    return polars.DataFrame(rows(s), schema=types, orient="row")


def to_csv(s: AnsweredTraces, name: str) -> str:
    """Returns one table as CSV, harmless in a terminal and in a spreadsheet.

    Raises:
        TraceError: for a table that doesn't exist.
    """
    rows, schema = _table(name)
    return rows_to_csv(list(schema), rows(s))


def _table(name: str) -> tuple[Callable[[AnsweredTraces], list[Row]], dict[str, str]]:
    return _TABLES[table_name(name)]


def write_tables(s: AnsweredTraces, folder: Path, kind: str) -> list[Path]:
    """Writes every table as FOLDER/NAME.csv or .parquet. Raises TraceError where the folder can't be written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            path = folder / f"{name}.{kind}"
            if kind == "csv":
                path.write_text(to_csv(s, name), encoding="utf-8")
            else:
                # The library doesn't raise OSError for all faults of the storage.
                content = io.BytesIO()
                frame(s, name).write_parquet(content)
                path.write_bytes(content.getbuffer())
            written.append(path)
    except OSError as error:
        raise TraceError(f"{folder}: can't be written: {error.strerror or error}") from error
    return written


def as_dict(s: AnsweredTraces) -> dict[str, Any]:
    """Returns the JSON form: stable within a schema version, documented in docs/how-to/trace.md."""
    ranks = []
    for t in s.traces:
        sources = sorted({i.window.source for i in t.iterations})
        ranks.append(
            {
                "file": t.file,
                "rank": t.rank,
                "rank_source": t.rank_source,
                "world_size": t.world_size,
                "backend": t.backend,
                "device": t.device,
                "start_ns": t.start_ns if t.parts is not None else None,
                "window": parts_row(t.parts) if t.parts is not None else None,
                "window_source": "+".join(sources) or "whole",
                "iterations": [
                    {
                        "name": i.window.name,
                        "start_ns": i.window.start_ns,
                        "window_source": i.window.source,
                        "cut": i.window.cut,
                        **parts_row(i.parts),
                    }
                    for i in t.iterations
                ],
                "collectives": [
                    {k: v for k, v in collective_row(r).items() if k != "rank"}
                    for r in s.collective_rows
                    if r.rank == t.rank
                ],
                "kernels": _structs(t.kernels),
                "diagnostics": _diagnostic_rows(t.diagnostics),
                "problems": _former_problems(t.diagnostics),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "world_size": s.world_size,
        "answer": _answer(s),
        "ranks": ranks,
        "skew": _skew(s),
        "clocks": _structs(s.clocks),
        "comm_parts": _structs(s.comm_parts),
        "stragglers": _structs(s.stragglers),
        "without_stragglers": _without_stragglers(s),
        "imbalance": _structs(s.imbalance),
        "top_exposed": [row | {"causes": _structs(row["causes"])} for row in _structs(s.exposed)],
        "causes": _structs(s.causes),
        "slowdowns": [{"rank": t.rank, **row} for t in s.traces for row in _structs(t.slowdowns)],
        "profiler_cost": _structs([s.profiler_cost])[0] if s.profiler_cost is not None else None,
        "diagnostics": _diagnostic_rows(s.run_diagnostics),
        "problems": _former_problems(s.run_diagnostics),
        "lost_time": _lost_time(s),
        "findings": _former_findings(s),
        "summary": s.summary,
    }
