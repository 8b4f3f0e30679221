"""Diagnostics of traces: counted by code, merged over ranks, and printed as everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.tracefiles import Made, make_job
from wirecost.cli import application
from wirecost.diagnostics import KINDS, Severity, loses_data
from wirecost.trace import TraceSet, read
from wirecost.trace.diagnostic_counts import DiagnosticCounts


def job_with_broken_events(folder: Path, ranks: int, broken: dict[int, int]) -> TraceSet:
    """Writes a job of which some ranks have that many events of negative duration, and reads it."""
    for made in make_job(ranks, 2, seed=51):
        (folder / f"rank{made.rank}.json").write_bytes(with_broken_events(made, broken.get(made.rank, 0)))
    return read(folder)


def with_broken_events(made: Made, count: int) -> bytes:
    trace = json.loads(made.text)
    kernel = next(e for e in trace["traceEvents"] if e.get("cat") == "kernel")
    trace["traceEvents"] += [kernel | {"dur": -1 - n} for n in range(count)]
    return json.dumps(trace).encode()


def test_counts_give_diagnostics_of_lost_data_first() -> None:
    counts = DiagnosticCounts()
    counts.add("bytes_unknown", 7)
    counts.add("broken_event", 2, detail="first")
    counts.add("broken_event", detail="second")
    counts.add("cut_off", 0)
    apart = counts.copy()
    apart.add("bytes_unknown")
    assert [(d.code, d.count) for d in counts.listed()] == [("broken_event", 3), ("bytes_unknown", 7)]
    assert apart.count("bytes_unknown") == 8 and counts.count("cut_off") == 0
    broken, unknown = counts.listed()
    assert broken.message == KINDS["broken_event"].message + " (first)"
    assert (broken.severity, loses_data(broken)) == (Severity.WARNING, True)
    assert (unknown.severity, loses_data(unknown)) == (Severity.INFO, False)


def test_a_code_that_is_not_registered_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such_code"):
        DiagnosticCounts().add("no_such_code")


@pytest.mark.parametrize(
    ("broken", "subject", "times"),
    [
        ({1: 1}, "rank 1", ""),
        ({1: 3}, "rank 1", ", 3 times"),
        ({0: 1, 2: 1}, "ranks 0, 2", ""),
        ({0: 1, 1: 2, 2: 1, 3: 1, 4: 1}, "5 of 6 ranks", ", 6 times"),
        (dict.fromkeys(range(6), 1), "all 6 ranks", ""),
    ],
)
def test_warnings_are_merged_over_ranks(tmp_path: Path, broken: dict[int, int], subject: str, times: str) -> None:
    traces = job_with_broken_events(tmp_path, 6, broken)
    (warning,) = [d for d in traces.notable_diagnostics if d.code == "negative_duration"]
    assert (warning.subject, warning.count) == (subject, sum(broken.values()))
    assert warning.message == KINDS["negative_duration"].message + times
    assert f"warning negative_duration: {subject}: {warning.message}" in traces.summary


def test_the_breakdown_names_the_rank_as_subject(tmp_path: Path) -> None:
    listed = job_with_broken_events(tmp_path, 2, {1: 2}).breakdown.diagnostics
    (lost,) = [d for d in listed if d.code == "negative_duration"]
    assert (lost.subject, lost.count, lost.message) == ("rank 1", 2, KINDS["negative_duration"].message)


def test_json_has_diagnostics_beside_the_former_keys(tmp_path: Path) -> None:
    document = job_with_broken_events(tmp_path, 2, {1: 2}).to_dict()
    assert document["schema_version"] == 2
    rank = document["ranks"][1]
    (lost,) = [d for d in rank["diagnostics"] if d["code"] == "negative_duration"]
    assert (lost["severity"], lost["count"], lost["loss"], lost["remedy"]) == ("warning", 2, True, None)
    assert [(p["code"], p["count"]) for p in rank["problems"]] == [
        (d["code"], d["count"]) for d in rank["diagnostics"]
    ]
    assert document["lost_time"]
    for loss, former in zip(document["lost_time"], document["findings"], strict=True):
        assert loss["severity"] == "warning" and loss["message"] == former["text"]
        assert (loss["remedy"], loss["share"]) == (former["advice"], former["share"])


def test_the_command_prints_warnings_below_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_with_broken_events(tmp_path, 2, {1: 2})
    monkeypatch.setenv("COLUMNS", "200")
    lines = CliRunner().invoke(application(), ["trace", str(tmp_path)]).output.splitlines()
    heads = [line.split()[0] for line in lines[:5]]
    assert heads == ["Iteration", "Communication", "Cause", "To", "Next"]
    (warning,) = [line for line in lines if line.startswith("warning ")]
    assert warning.startswith("warning negative_duration: rank 1: events have a negative duration")
    table = CliRunner().invoke(application(), ["trace", str(tmp_path), "--table", "problems"]).output
    assert "data lost: events have a negative duration" in table
