"""Breakdowns are decoded quickly and accepted as pydantic accepts them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from wirecost.breakdown import (
    Breakdown,
    Collective,
    Interval,
    Iteration,
    MemoryKind,
    NetworkRecord,
    Parts,
    PeakMemory,
    Phase,
    Profile,
    Source,
    UnknownProfile,
)
from wirecost.breakdown.decode import decode_breakdown, to_model
from wirecost.breakdown.integers import MOST as LARGEST
from wirecost.diagnostics import KINDS, Diagnostic, Severity

NS = st.integers(0, 2**60)
RATES = st.none() | st.floats(1, 1e12)
TEXT = st.text(max_size=8)


@st.composite
def iterations(draw: st.DrawFn) -> Iteration:
    parts = draw(st.lists(NS, min_size=5, max_size=5))
    names = ("compute_only_ns", "overlapped_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")
    return Iteration(
        rank=draw(st.integers(0, 3)),
        name=draw(TEXT),
        parts=Parts(window_ns=sum(parts), **dict(zip(names, parts, strict=True))),
        phases=draw(st.dictionaries(st.sampled_from(Phase), NS, max_size=4)),
        start_ns=draw(st.none() | st.integers(-(2**63) + 1, 2**63 - 1)),
        loss=draw(st.none() | st.floats(-1e6, 1e6)),
    )


COLLECTIVES = st.builds(
    Collective, rank=st.none() | st.integers(0, 3), op=TEXT, group=TEXT, group_size=st.none() | st.integers(1, 9),
    count=st.integers(1, LARGEST), bytes=st.none() | st.integers(0, LARGEST), duration_ns=NS,
    wait_ns=st.none() | NS, busbw_Bps=st.none() | st.floats(0, 1e12), expected_ns=st.none() | NS,
)  # fmt: skip
DIAGNOSTICS = st.builds(
    Diagnostic,
    code=st.just("a_b"),
    severity=st.sampled_from(Severity),
    message=TEXT,
    remedy=st.none() | TEXT,
    subject=st.none() | TEXT,
    count=st.none() | st.integers(0, LARGEST),
)
BREAKDOWNS = st.builds(
    Breakdown,
    source=st.sampled_from(Source),
    title=TEXT,
    world_size=st.just(4),
    iterations=st.lists(iterations(), max_size=4).map(tuple),
    collectives=st.lists(COLLECTIVES, max_size=2).map(tuple),
    network=st.none()
    | st.builds(NetworkRecord, name=TEXT, emulated=st.booleans(), measured_rate_bps=RATES, nominal_rate_bps=RATES),
    peak_memory=st.lists(
        st.builds(
            PeakMemory,
            rank=st.integers(0, 3),
            kind=st.just(MemoryKind.RESIDENT_SET),
            since=st.sampled_from(["first_measured_iteration", "process_start"]),
            peak_bytes=NS,
        ),
        max_size=2,
    ).map(tuple),
    profile=st.none()
    | st.builds(
        Profile,
        asked_iterations=st.integers(1, 9),
        iterations=st.lists(iterations(), max_size=1).map(tuple),
        unknown=st.lists(st.builds(UnknownProfile, rank=st.integers(0, 3), reason=TEXT), max_size=1).map(tuple),
    ),
    tokens_per_iteration=st.none() | st.integers(1, LARGEST),
    interval=st.none() | st.builds(Interval, level=st.floats(0.1, 0.9), low_ns=NS, high_ns=NS),
    diagnostics=st.lists(DIAGNOSTICS, max_size=2).map(tuple),
    details=st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=2),
)
INSERTED = [
    b"NaN", b"Infinity", b"1e400", b"-1", b"1.0", b"1.5", b'"5"', b"true", b"null", b"[]", b"{}", b'""', b"-0.0",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", str(LARGEST).encode(),
    str(LARGEST + 1).encode(), b"9" * 5000, b'"\\ud800"', b'"\xff"', b'"forward"', b"[" * 300, b"\x00", b"",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(BREAKDOWNS)
def test_every_field_is_what_pydantic_reads(breakdown: Breakdown) -> None:
    decoded = decode_breakdown(breakdown.model_dump_json().encode())
    assert to_model(Breakdown, decoded) == breakdown


def test_ordinary_breakdowns_need_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    content = Breakdown(source=Source.MEASURED, title="t", world_size=1, iterations=()).model_dump_json().encode()
    monkeypatch.setattr(Breakdown, "model_validate_json", None)
    assert decode_breakdown(content).world_size == 1


@settings(max_examples=200, deadline=None)
@given(BREAKDOWNS, st.data())
def test_changed_breakdowns_are_accepted_and_refused_as_pydantic_does(
    breakdown: Breakdown, data: st.DataObject
) -> None:
    check_changed(breakdown.model_dump_json().encode(), data)


def check_changed(content: bytes, data: st.DataObject) -> None:
    """Changes a token of the content; both decoders must give the same breakdown or the same refusal."""
    tokens = [m.span() for m in re.finditer(rb'"[^"]*"|-?\d[\d.e+-]*|null|true|[\[\]{}:,]', content)]
    start, end = data.draw(st.sampled_from(tokens))
    changed = content[:start] + data.draw(st.sampled_from(INSERTED)) + content[end:]
    try:
        expected = Breakdown.model_validate_json(changed)
    except ValidationError as refusal:
        with pytest.raises(ValidationError) as ours:
            decode_breakdown(changed)
        assert str(ours.value) == str(refusal)
        return
    decoded = to_model(Breakdown, decode_breakdown(changed))
    assert repr(decoded) == repr(expected)  # repr, for NaN is unlike itself


def former(breakdown: Breakdown) -> dict[str, Any]:
    """The breakdown as version 1 of the schema has it."""
    data = breakdown.model_dump(mode="json")
    diagnostics = data.pop("diagnostics")
    data["warnings"] = [{"code": d["code"], "message": d["message"]} for d in diagnostics]
    return data | {"schema_version": 1}


@settings(max_examples=60, deadline=None)
@given(BREAKDOWNS)
def test_breakdowns_of_version_1_are_read(breakdown: Breakdown) -> None:
    content = json.dumps(former(breakdown)).encode()
    expected = tuple(Diagnostic(d.code, Severity.WARNING, d.message) for d in breakdown.diagnostics)
    read = Breakdown.model_validate_json(content)
    assert read == breakdown.model_copy(update={"diagnostics": expected})
    assert to_model(Breakdown, decode_breakdown(content)) == read


def test_warnings_of_version_1_have_the_registered_severity_and_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    breakdown = Breakdown(source=Source.MEASURED, title="t", world_size=1, iterations=())
    data = former(breakdown) | {"warnings": [{"code": "transport_not_as_asked", "message": "m"}]}
    (read,) = Breakdown.model_validate(data).diagnostics
    assert read == Diagnostic("transport_not_as_asked", KINDS["transport_not_as_asked"].severity, "m")
    del data["schema_version"]
    assert Breakdown.model_validate(data).diagnostics == (read,)
    monkeypatch.setattr(Breakdown, "model_validate_json", None)
    assert decode_breakdown(json.dumps(data).encode()).diagnostics == (read,)


@settings(max_examples=200, deadline=None)
@given(BREAKDOWNS, st.data())
def test_changed_breakdowns_of_version_1_are_accepted_and_refused_as_pydantic_does(
    breakdown: Breakdown, data: st.DataObject
) -> None:
    check_changed(json.dumps(former(breakdown)).encode(), data)


@pytest.mark.parametrize(
    "warnings",
    [None, 5, {}, "no", [5], [{}], [{"code": "a"}], [{"code": "A", "message": "m"}], [{"code": 1, "message": "m"}],
     [{"code": "a", "message": None}], [{"code": "a", "message": "m", "colour": "red"}]],
)  # fmt: skip
def test_warnings_that_version_1_does_not_allow_are_refused(warnings: object) -> None:
    breakdown = Breakdown(source=Source.MEASURED, title="t", world_size=1, iterations=())
    with pytest.raises(ValidationError):
        decode_breakdown(json.dumps(former(breakdown) | {"warnings": warnings}).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world_size": 1}, "rank 1 is outside a world of 1"),
        ({"schema_version": 3}, "Input should be 2"),
        ({"schema_version": 1}, "Input should be 2"),
        ({"warnings": []}, "Extra inputs are not permitted"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
        ({"collectives": [{"op": "x", "group": "y", "count": 1, "duration_ns": 10**31}]}, "less than or equal"),
    ],
)
def test_what_no_breakdown_may_hold_is_refused(change: dict[str, object], message: str) -> None:
    parts = Parts(
        window_ns=3, compute_only_ns=1, overlapped_ns=0, exposed_comm_ns=1, exposed_memory_ns=0, idle_ns=1
    )
    breakdown = Breakdown(
        source=Source.MEASURED, title="t", world_size=2, iterations=(Iteration(rank=1, name="0", parts=parts),)
    )
    data = breakdown.model_dump(mode="json")
    assert decode_breakdown(json.dumps(data).encode()).iterations[0].parts.idle_ns == 1
    with pytest.raises(ValidationError, match=message):
        decode_breakdown(json.dumps(data | change).encode())
    data["iterations"][0]["parts"]["idle_ns"] = 2
    with pytest.raises(ValidationError, match="the five parts sum to 4 ns"):
        decode_breakdown(json.dumps(data).encode())
