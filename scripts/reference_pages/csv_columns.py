"""The page of CSV columns."""

from __future__ import annotations

from reference_pages import NOTICE, columns, table
from reference_pages.columns import Columns

_INTRODUCTION = """# CSV columns

Columns of the tables that wirecost writes and reads. A name carries its unit: `_ns` nanoseconds, `_ms`
milliseconds, `_s` seconds, `_bytes` bytes, `_Bps` bytes per second, `_Gbps` gigabits per second. An empty cell is
*unknown*, never 0. What the quantities mean is in [what the numbers mean](../explanation/measurement.md).

In CSV that wirecost writes, a text that a spreadsheet would compute (it begins with `=`, `+`, `-` or `@`) has an
apostrophe in front.
"""


def page() -> str:
    """Returns the page: every column of every table with its unit and meaning."""
    parts = [
        NOTICE,
        "",
        _INTRODUCTION,
        "## What wirecost writes",
        "",
        _section(
            "Experiments of a study",
            "`wirecost report DIRECTORY --format csv`: one row for each experiment.",
            columns.STUDY,
        ),
    ]
    for name, described in columns.TRACE.items():
        parts.append(
            _section(f"Trace table `{name}`", f"`wirecost trace PATH --table {name} --format csv`.", described)
        )
    parts += [
        _section(
            "Collective benchmark",
            "The lines of `wirecost bench` that don't begin with `#`. The last four columns come twice: out of "
            "place, then in place.",
            columns.BENCH_TEXT,
        ),
        _section(
            "Collective benchmark as JSON",
            "Keys of each element of `rows` in `wirecost bench --format json`.",
            columns.BENCH,
        ),
        _section(
            "Counters",
            "`wirecost monitor --out FILE.jsonl` or `FILE.parquet`: one row for each device and sample.",
            columns.MONITOR,
        ),
        _section("Prediction", "`wirecost predict ... --format csv`.", columns.PREDICTION),
        _section("Sweep", "`wirecost predict ... --sweep AXIS=... --format csv`.", columns.SWEEP),
        _section("Predicted study", "`wirecost predict --study FILE --format csv`.", columns.PREDICTED_STUDY),
        _section("Need", "`wirecost need ... --format csv`.", columns.NEED),
        _section("Projection", "`wirecost project ... --format csv`.", columns.PROJECTION),
        _section("Comparison", "`wirecost compare BEFORE AFTER --format csv`.", columns.COMPARISON),
        _section(
            "Comparison of studies",
            "`wirecost compare DIRECTORY DIRECTORY --format csv`.",
            columns.STUDY_COMPARISON,
        ),
        _section("Calibration", "`wirecost calibrate TABLE.csv --format csv`.", columns.CALIBRATION),
        _section("Validation", "`wirecost validate TABLE.csv --format csv`.", columns.VALIDATION),
        _section(
            "Validation of a study",
            "`wirecost validate DIRECTORY --predictions DIRECTORY --format csv`.",
            columns.STUDY_VALIDATION,
        ),
        "## What wirecost reads",
        "",
        "`wirecost calibrate TABLE.csv` and `wirecost validate TABLE.csv` tell the kind of a table by its "
        "columns. An empty cell is filled from a preset or a default.",
        "",
        _section("Iteration times", "Tables with `iter_s`: one training run in each row.", columns.ITERATIONS),
        _section("Communication fractions", "Tables with `comm_fraction`.", columns.FRACTIONS),
        _section("Collective times", "Tables with `size_bytes` and `time_us`.", columns.COLLECTIVES),
    ]
    return "\n".join(parts)


def _section(title: str, text: str, described: Columns) -> str:
    rows = [(f"`{name}`", unit, meaning) for name, (unit, meaning) in described.items()]
    return f"### {title}\n\n{text}\n\n{table(('column', 'unit', 'meaning'), rows)}\n"
