"""Traces broken at random: never a crash, never a wrong answer in silence.

Whenever the reader reports no lost or repaired data, the file must be valid JSON and the answer must be what a
plain second opinion (tests/support/tracefiles.py) says of it. Each seed stands for itself: a failure names it.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from support.perfetto import overlapping, read_strictly
from support.tracefiles import make_job, opinion
from wirecost.diagnostics import KINDS as DIAGNOSTIC_KINDS
from wirecost.trace import TraceError, read, recovery, stream
from wirecost.trace.file import read_file
from wirecost.trace.html import render_html
from wirecost.trace.perfetto import write_perfetto
from wirecost.trace.rank import Options, RankTrace
from wirecost.trace.tables import NAMES

MUTATIONS = int(os.environ.get("WIRECOST_MUTATIONS", "10000"))
BATCHES = 20

LOSSES = {code for code, kind in DIAGNOSTIC_KINDS.items() if kind.loses_data}
# Told, but the answer is still that of the events that count.
_REPAIRS = frozenset(
    ("repaired_event", "invalid_utf8", "stray_separator", "bad_argument", "stray_device", "several_devices")
)

_BASES = [
    make_job(2, 2, seed=11, kernels=1)[0].text,
    make_job(2, 1, seed=12, kernels=2, layout="compact")[1].text,
    make_job(2, 2, seed=13, kernels=1, gpu_steps=True)[0].text,
    make_job(1, 1, seed=14, kernels=2, arguments=False, base=None, info=False)[0].text,
]
_WORDS = [
    b'"ts"', b'"dur"', b'"cat"', b'"ph"', b'"name"', b'"kernel"', b'"gpu_memcpy"', b'"args"', b'"traceEvents"',
    b"nccl", b"ProfilerStep#", b'"X"', b'"pid"', b'"user_annotation"', b'"distributedInfo"', b'"In msg nelems"',
    b'"dtype"',
]  # fmt: skip
_TOKENS = [
    b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\x00", b"\xff", b"null", b"-1", b"1e400", b"0",
    b"-0.5", b"99999999999999999999999", b'{"ph": "X"}', b"[]", b"\n", b"true", b"1.0000001", b'"', b"},{",
    b"\\u0000",     b'"ts": 5,', b'"cat": "kernel",',
]  # fmt: skip


_SEAMS = (b"\n  },\n  {", b'"},{"', b"}},{")


def truncate(draw: random.Random, text: bytes) -> bytes:
    return text[: draw.randrange(len(text))] if draw.random() < 0.8 else text[draw.randrange(len(text)) :]


def flip(draw: random.Random, text: bytes) -> bytes:
    out = bytearray(text)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        at = draw.randrange(len(out))
        out[at] = out[at] ^ (1 << draw.randrange(8)) if draw.random() < 0.7 else draw.randrange(256)
    return bytes(out)


def splice(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text))
    how = draw.random()
    if how < 0.4:
        return text[:at] + draw.choice(_TOKENS) + text[at + draw.choice((0, 0, 1, 3, 40)) :]
    other = draw.choice(_BASES)
    start = draw.randrange(len(other))
    if how < 0.7:
        return text[:at] + other[start : start + draw.randrange(1, 400)] + text[at:]
    return text[:at] + other[start:]


def _pieces(draw: random.Random, text: bytes) -> tuple[bytes, list[bytes]]:
    """The text at the events' seams, or, at times, at any brace."""
    seam = next((s for s in _SEAMS if s in text), b"{") if draw.random() < 0.8 else b"{"
    return seam, text.split(seam)


def reorder(draw: random.Random, text: bytes) -> bytes:
    seam, pieces = _pieces(draw, text)
    if len(pieces) < 4:
        return text
    i, j = sorted(draw.sample(range(1, len(pieces) - 1), 2))
    pieces[i], pieces[j] = pieces[j], pieces[i]
    return seam.join(pieces)


def duplicate(draw: random.Random, text: bytes) -> bytes:
    if draw.random() < 0.1:
        return text + text
    seam, pieces = _pieces(draw, text)
    if len(pieces) < 4:
        return text
    i = draw.randrange(1, len(pieces) - 1)
    pieces[i:i] = [pieces[i]] * draw.choice((1, 1, 2))
    return seam.join(pieces)


def rename(draw: random.Random, text: bytes) -> bytes:
    word = draw.choice([w for w in _WORDS if w in text] or [text[:1]])
    places = text.count(word)
    nth = draw.randrange(places)
    at = -1
    for _ in range(nth + 1):
        at = text.index(word, at + 1)
    new = draw.choice((draw.choice(_WORDS), word.upper(), word[:-2] + word[-1:], b'"x"', word.replace(b'"', b"")))
    return text[:at] + new + text[at + len(word) :]


KINDS = (truncate, flip, splice, reorder, duplicate, rename)


def mutated(seed: int, bases: list[bytes] = _BASES) -> bytes:
    draw = random.Random(seed)
    text = draw.choice(bases)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        text = draw.choice(KINDS)(draw, text) or b"{"
    return text


def judge(text: bytes, trace: RankTrace) -> None:
    told = {p.code for p in trace.diagnostics}
    assert all(p.count and p.count > 0 and p.message for p in trace.diagnostics)
    for piece in trace.iterations:
        assert piece.parts.window_ns == piece.window.end_ns - piece.window.start_ns
    if told & (LOSSES - {"no_device_events", "no_communication"}) or told & _REPAIRS:
        return
    want = opinion(text)  # raises ValueError where the reader passed over broken JSON
    assert not want.doubts
    if trace.parts is None:
        assert want.whole is None
        return
    assert want.whole is not None
    assert {k: getattr(trace.parts, k) for k in want.whole} == want.whole
    if trace.iterations:
        (source,) = {i.window.source for i in trace.iterations}
        got = {i.window.name: {k: getattr(i.parts, k) for k in want.whole} for i in trace.iterations}
        assert got == want.steps[source]
    # If launches tell the steps, these steps must be taken, unless only the GPU's annotations are steps. The steps are
    # the host's if the time from the first to the last work of one of them is less than a tenth of it, or the device
    # works in less than a tenth of several.
    assert bool(trace.iterations) == any(want.steps.values())
    scraps = (ns < 0.1 * want.steps["cpu_step"][name]["window_ns"] for name, ns in want.launched_ns.items())
    several = [name for name in want.launched_ns if len(want.launched_ns) > 1]
    device = [want.steps["launches"][name] for name in several]
    worked_ns = sum(parts["window_ns"] - parts["idle_ns"] for parts in device)
    thinned = worked_ns < 0.1 * sum(want.steps["cpu_step"][name]["window_ns"] for name in several)
    right = "cpu_step" if thinned or any(scraps) else "launches"
    assert not want.steps["launches"] or {i.window.source for i in trace.iterations} == {right}
    calls = trace.calls
    spans = sorted(zip((calls.end_ns - calls.start_ns).tolist(), calls.start_ns.tolist(), strict=True))
    shift = trace.start_ns - min((s for s, e in want.calls), default=0) if want.calls else 0
    assert [n for n, _ in spans] == sorted(e - s for s, e in want.calls), shift
    if "bytes_unknown" not in told:
        assert int(calls.bytes.clip(0).sum()) == want.bytes


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_mutation_crashes_or_lies(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small slices, so that the seams between them are hit as well.
    if batch % 2:
        monkeypatch.setattr(stream, "SLICE_BYTES", 3000)
        monkeypatch.setattr(recovery, "_LOOKAHEAD", 2500)
    path = tmp_path / "trace.json"
    answered = silent = 0
    for seed in range(batch, MUTATIONS, BATCHES):
        text = mutated(seed)
        path.write_bytes(text)
        try:
            trace, *others = read_file(path, Options())
        except TraceError as error:
            assert "\n" not in str(error)
            continue
        assert all("several_devices" in {p.code for p in t.diagnostics} for t in [trace, *others]) or not others
        answered += 1
        silent += not trace.diagnostics
        try:
            judge(text, trace)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    # The test would prove nothing if hardly any mutation got as far as an answer, or all were complained about.
    count = len(range(batch, MUTATIONS, BATCHES))
    assert answered > 0.7 * count
    assert 0.05 * count < silent < 0.7 * count


def test_the_bases_are_sound(tmp_path: Path) -> None:
    assert len(_BASES) == 4
    for number, text in enumerate(_BASES):
        path = tmp_path / f"{number}.json"
        path.write_bytes(text)
        (trace,) = read_file(path, Options())
        assert {p.code for p in trace.diagnostics} <= {"bytes_unknown"}
        judge(text, trace)


def test_whatever_is_read_can_be_shown(tmp_path: Path) -> None:
    """The way to the end for a few of them, two ranks at a time: JSON, breakdown, tables, page, tracks, sentences."""
    shown = 0
    for seed in range(300):
        for rank in (0, 1):
            (tmp_path / f"r{rank}.json").write_bytes(mutated(2 * seed + rank))
        try:
            traces = read(tmp_path, ranks=["r0.json=0", "r1.json=1"], timeline=True)
        except TraceError:
            continue
        json.dumps(traces.to_dict(), allow_nan=False)
        assert traces.breakdown.iterations or all(t.parts is None for t in traces.traces)
        for name in NAMES:
            traces.table(name)
        if any(t.timeline for t in traces.traces):
            render_html(traces)
            if seed % 5 == 0:
                write_perfetto(traces, tmp_path / "all.perfetto")
                assert overlapping(read_strictly(tmp_path / "all.perfetto")) == 0
        shown += 1
    assert shown > 200


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("name", "count"),
    [("cpu-op-with-stream.json.gz", 1000), ("dlrm-8-ranks/worker0_step_12.1694128201545.pt.trace.json.gz", 150)],
)
def test_real_traces_mutated(shared: Path, tmp_path: Path, name: str, count: int) -> None:
    base = gzip.decompress((shared / "traces" / name).read_bytes())
    path = tmp_path / "trace.json"
    answered = 0
    for seed in range(count):
        text = mutated(seed, [base])
        path.write_bytes(text)
        try:
            trace, *_ = read_file(path, Options())
        except TraceError:
            continue
        answered += 1
        try:
            judge(text, trace)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert answered > 0.7 * count
