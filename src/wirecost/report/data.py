"""Converts a study's report to rows for JSON, CSV, data frames and figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wirecost.address_space import check_room_for_polars
from wirecost.breakdown import MeanInterval, NetworkRecord, Phase, Spread
from wirecost.csv_text import rows_to_csv
from wirecost.diagnostics import legacy_warnings
from wirecost.report.cells import Cell, Scale
from wirecost.report.compression import Compression, compressions
from wirecost.report.largest_batch import LargestBatch, largest_batches
from wirecost.report.memory import peak_of
from wirecost.report.records import Benchmarked, Expectation, SpeedUp
from wirecost.report.study_report import StudyReport
from wirecost.report.what_if import Predicted
from wirecost.spec import JobExperiment

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 2
"""Version 1 has `warnings` instead of `diagnostics`, and `remark` instead of `reason`; both keys are kept."""
PARTS = ("compute_only", "overlapped", "exposed_comm", "exposed_memory", "idle")


def rows(report: StudyReport) -> list[dict[str, Any]]:
    """Returns one row for each experiment, with medians over the iterations after warm-up and quartiles of the two
    main figures.

    Times are in milliseconds; an unknown value is None.
    """
    return [_row(cell) for cell in report.cells]


def _row(cell: Cell) -> dict[str, Any]:
    experiment = cell.result.experiment
    row: dict[str, Any] = {
        "workload": cell.workload,
        "network": cell.network,
        "plan": cell.plan,
        "scaling": str(cell.scale.scaling) if cell.scale.scaling else None,
        "ranks": cell.scale.ranks,
        "global_batch": cell.scale.global_batch,
        "micro_batch": None if isinstance(experiment, JobExperiment) else experiment.micro_batch,
        "accumulation": cell.scale.accumulation,
        "status": str(cell.result.outcome.status),
        "reason": cell.result.outcome.reason,
    }
    s = cell.summary
    time = s.iteration_ns if s else None
    first = next((run.summary for run in cell.runs if run.summary), None)
    row["iterations"] = len(first.iteration_times_ns) if first else None
    row["repeats"] = time.n if time and cell.over_repeats else 1 if time else None
    row |= _quartiles("iteration_ms", time, 1e-6)
    row |= _interval("iteration_ms", cell.iteration_interval_ns, 1e-6)
    row |= _quartiles("comm_fraction", cell.comm_fraction, 1.0)
    row |= _interval("comm_fraction", cell.fraction_interval, 1.0)
    row["disturbed"] = " ".join(cell.disturbed) if s else None
    for part in PARTS:
        share = s.part_shares[f"{part}_ns"] if s else None
        row[f"{part}_fraction"] = share.median if share else None
    for phase in Phase:
        spent = s.phases_ns.get(phase) if s else None
        row[f"{phase}_ms"] = spent.median * 1e-6 if spent else None
    prediction = cell.predicted
    row["predicted_iteration_ms"] = (
        time.median * 1e-6 if prediction and (time := prediction.iteration_ns()) else None
    )
    row["predicted_comm_fraction"] = f.median if prediction and (f := prediction.comm_fraction()) else None
    row["tokens_per_s"] = s.tokens_per_s if s else None
    row["sent_bytes"] = s.sent_bytes if s else None
    window = s.profile if s else None
    row["profiled_iterations"] = window.asked_iterations if window else None
    row["profiled_source"] = window.source if window else None
    row["profiled_overlapped_fraction"] = window.overlapped if window else None
    row["profiled_exposed_comm_fraction"] = window.exposed_comm if window else None
    row["profiled_overlap"] = window.overlap if window else None
    row["profiled_unknown"] = window.reason if window else None
    peak = peak_of(cell)
    row["peak_memory_bytes"] = peak.peak_bytes if peak else None
    row["peak_memory_kind"] = str(peak.kind) if peak and peak.kind else None
    row["peak_memory_since"] = peak.since if peak else None
    row["peak_memory_reserved_bytes"] = peak.reserved_bytes if peak else None
    row["oom_asked_bytes"] = peak.out.asked_bytes if peak and peak.out else None
    row["loss_first"] = s.losses[0] if s and s.losses else None
    row["loss_last"] = s.losses[-1] if s and s.losses else None
    row["expert_imbalance"] = s.expert_imbalance.median if s and s.expert_imbalance else None
    row |= _network(s.network if s else None)
    row["diagnostics"] = " ".join(dict.fromkeys(d.code for d in s.diagnostics)) if s else None
    return row


def _network(known: NetworkRecord | None) -> dict[str, Any]:
    return {
        "transport": known.transport if known else None,
        "emulated": known.emulated if known else None,
        "nominal_rate_Gbps": known.nominal_rate_bps / 1e9 if known and known.nominal_rate_bps else None,
        "measured_rate_Gbps": known.measured_rate_bps / 1e9 if known and known.measured_rate_bps else None,
        "mean_use_Gbps": known.mean_use_bps / 1e9 if known and known.mean_use_bps is not None else None,
        "peak_use_Gbps": known.peak_use_bps / 1e9 if known and known.peak_use_bps is not None else None,
        "tcp_retransmitted": known.tcp_retransmitted if known else None,
    }


def _quartiles(name: str, spread: Spread | None, factor: float) -> dict[str, float | None]:
    if spread is None:
        return {name: None, f"{name}_q1": None, f"{name}_q3": None}
    return {name: spread.median * factor, f"{name}_q1": spread.q1 * factor, f"{name}_q3": spread.q3 * factor}


def _interval(name: str, interval: MeanInterval | None, factor: float) -> dict[str, float | None]:
    """Returns the 95 % interval over repeats; None without two of them."""
    return {
        f"{name}_low": interval.low * factor if interval else None,
        f"{name}_high": interval.high * factor if interval else None,
    }


def to_frame(report: StudyReport) -> pl.DataFrame:
    """Returns the rows as a data frame."""
    check_room_for_polars()
    import polars as pl

    return pl.DataFrame(rows(report), infer_schema_length=None)


def to_csv(report: StudyReport) -> str:
    table = rows(report)
    return rows_to_csv(list(table[0]) if table else [], table)


def to_json(report: StudyReport) -> str:
    """Returns the report as JSON. The keys are documented in docs/how-to/study.md; `format_version` changes with
    them.
    """
    diagnostics = report.diagnostics()
    document = {
        "format_version": FORMAT_VERSION,
        "name": report.name,
        "environment": report.environment,
        "experiments": rows(report),
        "speed_ups": [_speed_up(each) for each in report.speed_ups()],
        "expected_from_bytes_and_rate": [_expectation(each) for each in report.expectations()],
        "gradient_traffic": [_gradient_traffic(each) for each in compressions(report)],
        "largest_batches": [_largest_batch(each) for each in largest_batches(report)],
        "what_if": [_predicted(each) for each in report.what_ifs],
        "networks": [_benchmark(each) for each in report.benchmarks],
        "diagnostics": [row.diagnostic.as_json() | {"experiments": row.experiments} for row in diagnostics],
        "warnings": [
            legacy_warnings([row.diagnostic])[0] | {"experiments": row.experiments} for row in diagnostics
        ],
    }
    return json.dumps(document, indent=1)


def _speed_up(s: SpeedUp) -> dict[str, Any]:
    return {
        "workload": s.workload,
        "plan": s.plan,
        **_scale(s.scale),
        "fast": s.fast,
        "slow": s.slow,
        "speed_up": s.ratio.value,
        "low": s.ratio.low,
        "high": s.ratio.high,
        "n_fast": s.ratio.n_denominator,
        "n_slow": s.ratio.n_numerator,
        "disturbed": " ".join(s.disturbed),
    }


def _expectation(e: Expectation) -> dict[str, Any]:
    return {
        **_place(e.cell),
        "bytes": round(e.bytes_per_call),
        "measured_ms": e.measured_ns * 1e-6,
        "expected_ms": e.expected_ns * 1e-6,
        "deviation": e.deviation,
        "holds": e.holds,
    }


def _gradient_traffic(c: Compression) -> dict[str, Any]:
    return {
        **_place(c.cell),
        "traffic": c.traffic,
        "sent_bytes": c.sent_bytes,
        "saved": c.saved,
        "losses": c.losses,
    }


def _predicted(p: Predicted) -> dict[str, Any]:
    return {
        **_place(p.cell),
        "from_network": p.base.network,
        "from_plan": p.base.plan,
        "question": p.question,
        "measured_ms": p.measured_ms,
        "predicted_ms": p.predicted_ms,
        "low_ms": p.low_ms,
        "high_ms": p.high_ms,
        "error": p.error,
        "inside": p.inside,
        "unknown": p.unknown,
    }


def _largest_batch(row: LargestBatch) -> dict[str, Any]:
    return {
        "workload": row.workload,
        "plan": row.plan,
        "ranks": row.ranks,
        "micro_batch": row.largest,
        "smallest_oom_micro_batch": row.smallest_oom,
        "trials": row.trials,
        "memory_bytes": row.memory_bytes,
    }


def _benchmark(b: Benchmarked) -> dict[str, Any]:
    return {
        "network": b.network,
        "hosts": b.hosts,
        "ranks": b.ranks,
        "latency_ns": b.latency_ns,
        "largest_bytes": b.largest_bytes,
        "bus_bandwidth_GBps": b.measured_Bps * 1e-9 if b.measured_Bps else None,
        "fitted_bus_bandwidth_GBps": b.fitted_Bps * 1e-9 if b.fitted_Bps else None,
        "left_out_error": b.left_out_error,
        "reason": b.reason,
        "remark": b.reason,
    }


def _place(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "network": cell.network,
        "plan": cell.plan,
        **_scale(cell.scale),
        "disturbed": " ".join(cell.disturbed),
    }


def _scale(scale: Scale) -> dict[str, Any]:
    return {
        "scaling": str(scale.scaling) if scale.scaling else None,
        "ranks": scale.ranks,
        "global_batch": scale.global_batch,
        "accumulation": scale.accumulation,
    }
