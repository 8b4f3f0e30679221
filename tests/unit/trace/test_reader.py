"""The reader: right on sound files however they are cut into slices, honest on broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.tracefiles import make_job, opinion
from wirecost.trace import TraceError, recovery, source, stream
from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.rank import RankTrace
from wirecost.trace.stream import EventStream

from .conftest import Read

SOUND = make_job(2, 3, seed=1)[0]


def codes(trace: RankTrace) -> dict[str, int]:
    return {p.code: p.count or 0 for p in trace.diagnostics}


def name_of(event: Any) -> str:
    """The name of an event, decoded as its category's type or as a plain one."""
    return event.name if isinstance(event.name, str) else json.loads(bytes(event.name))


def same(trace: RankTrace, text: bytes) -> None:
    """The trace says what the plain second opinion says of a valid text."""
    want = opinion(text)
    assert not want.doubts
    assert want.whole is not None and trace.parts is not None
    assert {k: getattr(trace.parts, k) for k in want.whole} == want.whole
    assert bool(trace.iterations) == any(want.steps.values())
    for told in {i.window.source for i in trace.iterations}:
        got = {i.window.name: {k: getattr(i.parts, k) for k in want.whole} for i in trace.iterations}
        assert got == want.steps[told]
    assert len(trace.calls) == len(want.calls)


def insert(text: bytes, event: bytes, at: int = 5) -> bytes:
    """Puts one more element into the list of events."""
    pieces = text.split(b"\n  },\n  {")
    return b"\n  },\n  {".join(pieces[:at]) + b"\n  },\n" + event + b",\n  {" + b"\n  },\n  {".join(pieces[at:])


@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize("gpu_steps", [False, True])
def test_a_sound_trace_has_no_problem_and_the_right_parts(read: Read, layout: str, gpu_steps: bool) -> None:
    job = make_job(3, 4, seed=2, layout=layout, gpu_steps=gpu_steps)
    assert len(job) == 3
    for made in job:
        trace = read(made.text)
        assert trace.diagnostics == []
        assert trace.rank == made.rank
        assert trace.world_size == 3
        assert [i.window.name for i in trace.iterations] == made.steps
        assert {i.window.source for i in trace.iterations} == {"launches"}
        same(trace, made.text)
        for window in ("cpu", "gpu") if gpu_steps else ("cpu",):
            trace = read(made.text, window=window)
            assert {i.window.source for i in trace.iterations} == {f"{window}_step"}
            same(trace, made.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(size=st.integers(64, 6000), chunk=st.integers(1, 4000), layout=st.sampled_from(["kineto", "compact"]))
def test_slices_and_chunks_of_any_size_give_the_same(size: int, chunk: int, layout: str) -> None:
    text = make_job(2, 2, seed=3, layout=layout)[0].text
    want = [e["name"] for e in json.loads(text)["traceEvents"]]
    problems = DiagnosticCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "SLICE_BYTES", size)
        pieces = (text[i : i + chunk] for i in range(0, len(text), chunk))
        events = EventStream(pieces, problems)
        got = [name_of(e) for part in events for e in part.events]
    assert got == want
    assert problems.listed() == []
    assert events.metadata["baseTimeNanoseconds"] == json.loads(text)["baseTimeNanoseconds"]


def test_nested_objects_that_look_like_the_end_of_an_event(read: Read) -> None:
    tricky = json.dumps(
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": '}, {"ph": "X"',
            "ts": 1,
            "dur": 1,
            "args": {"a": [{}, {"b": "},{"}, {}]},
        }
    )
    text = insert(SOUND.text, b"  " + tricky.encode())
    with pytest.MonkeyPatch.context() as patch:
        sizes = range(200, 4000, 97)
        assert len(sizes) == 40
        for size in sizes:
            patch.setattr(stream, "SLICE_BYTES", size)
            trace = read(text)
            assert trace.diagnostics == []
            same(trace, text)


def test_top_level_order_does_not_matter(read: Read) -> None:
    document = json.loads(make_job(2, 1, seed=4, layout="compact")[0].text)
    turned = dict(reversed(document.items()))
    text = json.dumps(turned).encode()
    assert read(text).diagnostics == []
    same(read(text), text)


def test_a_bare_list_of_events(read: Read) -> None:
    text = json.dumps(json.loads(make_job(1, 1, layout="compact")[0].text)["traceEvents"]).encode()
    trace = read(text)
    assert trace.diagnostics == []
    same(trace, text)


@pytest.mark.parametrize("suffix", ["json", "gz", "zst"])
def test_compression_is_told_by_content_not_by_name(tmp_path: Path, read: Read, suffix: str) -> None:
    text = SOUND.text
    packed = {"json": text, "gz": gzip.compress(text), "zst": zstandard.compress(text)}[suffix]
    same(read(packed, name="rank0.json"), text)


def test_gzip_of_several_members(read: Read) -> None:
    text = SOUND.text
    same(read(gzip.compress(text[:3000]) + gzip.compress(text[3000:]) + b"\0" * 512), text)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_cut_off_compressed_files_keep_what_is_whole(read: Read, pack: object, share: float) -> None:
    text = make_job(2, 500, seed=5)[0].text
    packed = pack(text)  # pyright: ignore[reportCallIssue]
    cut = packed[: int(len(packed) * share)]
    trace = read(cut)
    assert codes(trace).get("cut_off") == 1
    assert trace.events > 0.1 * len(json.loads(text)["traceEvents"])


def test_a_damaged_gzip_is_said(read: Read) -> None:
    packed = bytearray(gzip.compress(SOUND.text))
    packed[-6] ^= 255  # the checksum
    trace = read(bytes(packed))
    assert codes(trace) == {"compressed_data_broken": 1}
    same(trace, SOUND.text)


def test_damage_inside_a_gzip_keeps_what_came_before(read: Read) -> None:
    text = make_job(2, 400, seed=5)[0].text
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2] ^= 255
    trace = read(bytes(packed))
    assert codes(trace)["compressed_data_broken"] == 1
    assert trace.events > 0.4 * len(json.loads(text)["traceEvents"])


def test_cutting_anywhere_keeps_every_whole_event_and_says_so(read: Read) -> None:
    text = SOUND.text
    first = text.index(b'"traceEvents"') + 20
    last = text.rindex(b"\n  ],")
    assert len(range(first, last, 61)) > 100
    for cut in range(first, last, 61):
        trace = read(text[:cut])
        assert codes(trace)["cut_off"] == 1
        whole = text[:cut].count(b"\n  },")
        assert whole <= trace.events <= whole + 1
        kept = text[: text.rfind(b"\n  },", 0, cut) + 4] if whole else text[:first]
        if trace.events == whole and whole and trace.parts is not None:
            same(trace, kept + b"\n  ]\n}")


def event(**fields: object) -> bytes:
    base = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"n": 1}}
    made = {k: v for k, v in (base | fields).items() if v is not ...}
    return ("  " + json.dumps(made)).encode()


BROKEN = {
    "a stray list": (b"  []", "stray_element"),
    "a stray list of events": (b'  [{"ph": "X"}, {"ph": "X"}]', "stray_element"),
    "a stray number": (b"  17", "stray_element"),
    "a stray string": (b'  "}, {"', "stray_element"),
    "null": (b"  null", "stray_element"),
    "no start": (event(ts=...), "bad_time"),
    "no duration": (event(dur=...), "bad_time"),
    "a start in words": (event(ts="soon"), "bad_time"),
    "a list for a start": (event(ts=[1]), "bad_time"),
    "a start beyond 64 bits": (event(ts=10**30), "out_of_range"),
    "a duration beyond 64 bits": (event(dur=2**80), "out_of_range"),
    "a duration of weeks": (event(dur=2 * 10**12), "out_of_range"),
    "a huge exponent": (event().replace(b'"ts": 1', b'"ts": 1e999999'), "out_of_range"),
    "a negative duration": (event(dur=-3), "negative_duration"),
    "a negative duration below a nanosecond": (event(dur=-0.0001), "negative_duration"),
    "no name": (event(name=...), "unnamed_event"),
    "a number for a name": (event(name=7), "unnamed_event"),
    "no phase": (event(ph=...), "unsupported_phase"),
    "another phase": (event(ph="B"), "unsupported_phase"),
    "no category": (event(cat=...), "event_without_category"),
    "an unknown category": (event(cat="kernal"), "unknown_category"),
    "a number for a category": (event(cat=5), "broken_event"),
    "an unescaped quote": (event(name="QUOTE").replace(b"QUOTE", b'a "b" c'), "repaired_event"),
    "an unescaped backslash": (event(name="SLASH").replace(b"SLASH", b"C:\\project\\x"), "repaired_event"),
    "a control byte": (event(name="CTRL").replace(b"CTRL", b"a\x01b"), "repaired_event"),
    "a bare line feed": (event(name="LF").replace(b"LF", b"a\nb"), "broken_event"),
    "a bare quote in the arguments": (event(args={"x": "Q"}).replace(b'"Q"', b'"a "b" c"'), "repaired_event"),
    "a missing brace": (event()[:-1], "repaired_event"),
    "a missing colon": (event().replace(b'"ph":', b'"ph"'), "broken_event"),
    "NaN": (event().replace(b'"dur": 2', b'"dur": NaN'), "broken_event"),
    "garbage": (b"  %$#!", "broken_event"),
    "invalid UTF-8 in the name": (event(name="UTF").replace(b"UTF", b"a\xff\xfeb"), "invalid_utf8"),
    "invalid UTF-8 in the arguments": (event(args={"x": "UTF"}).replace(b"UTF", b"\xc3"), "invalid_utf8"),
    "too many commas": (event(dur=0.5) + b",", "stray_separator"),
    "deep nesting": (b'  {"ph": "X", "args": ' + b"[" * 5000 + b"]" * 5000 + b"}", "broken_event"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_event_is_counted_and_all_others_kept(read: Read, what: str) -> None:
    element, code = BROKEN[what]
    sound = read(SOUND.text)
    trace = read(insert(SOUND.text, element))
    assert codes(trace).get(code) == 1
    assert set(codes(trace)) <= {code, "stray_separator"}
    # The broken one lies long before all others: whatever is kept of it can't touch the steps.
    assert [i.parts for i in trace.iterations] == [i.parts for i in sound.iterations]
    assert len(trace.calls) == len(sound.calls)


def test_many_broken_events_are_each_counted(read: Read) -> None:
    text = SOUND.text
    for _ in range(50):
        text = insert(text, b'  {"ph": "X", "cat" oops}')
    trace = read(text)
    assert codes(trace) == {"broken_event": 50}
    same(trace, SOUND.text)


def test_a_repaired_event_keeps_its_time(read: Read) -> None:
    plain = read(insert(SOUND.text, event(name="gemm", ts=900_000, dur=77.5)))
    hurt = read(insert(SOUND.text, event(name="QUOTE", ts=900_000, dur=77.5).replace(b"QUOTE", b'<"a">')))
    assert hurt.parts == plain.parts


def test_integers_beyond_64_bits_in_arguments_are_no_matter(read: Read) -> None:
    text = insert(SOUND.text, event(cat="cpu_op", args={"x": 10**40}))
    trace = read(text)
    assert trace.diagnostics == []


def test_collective_arguments_that_cannot_be(read: Read) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": -5, "Group size": 2**70, "dtype": "Float"}
    trace = read(insert(SOUND.text, event(name="ncclDevKernel_AllReduce", args=args)))
    assert codes(trace)["bad_argument"] == 2
    assert -1 in trace.calls.bytes.tolist()


def test_zero_durations_count_for_nothing(read: Read) -> None:
    trace = read(insert(SOUND.text, event(dur=0)))
    assert codes(trace) == {"zero_duration": 1}
    same(trace, SOUND.text)


def test_exact_duplicates_count_once(read: Read) -> None:
    pieces = SOUND.text.split(b"\n  },\n  {")
    nccl = next(i for i, p in enumerate(pieces) if b"ncclDev" in p)
    doubled = b"\n  },\n  {".join([*pieces[: nccl + 1], pieces[nccl], *pieces[nccl + 1 :]])
    trace = read(doubled)
    assert codes(trace) == {"duplicate_event": 1}
    same(trace, SOUND.text)


def test_two_files_in_one_keeps_the_first_and_says_so(read: Read) -> None:
    other = make_job(2, 5, seed=9)[1].text
    trace = read(SOUND.text + other)
    assert codes(trace) == {"data_after_end": 1}
    same(trace, SOUND.text)


def test_a_second_list_of_events_is_said(read: Read) -> None:
    text = SOUND.text.rstrip()[:-1] + b', "traceEvents": []}'
    assert codes(read(text)) == {"second_event_list": 1}


def test_a_broken_head_does_not_lose_the_events(read: Read) -> None:
    trace = read(SOUND.text.replace(b'"schemaVersion": 1', b'"schemaVersion": oops'))
    assert codes(trace) == {"broken_metadata": 1}
    assert trace.events == read(SOUND.text).events


def test_a_list_closed_too_early_is_taken_up_again(read: Read) -> None:
    text = insert(SOUND.text, b'  {"ph": "M", "name": "x"}],')
    trace = read(text)
    assert codes(trace)["broken_metadata"] >= 1
    assert trace.events >= read(SOUND.text).events


@pytest.mark.parametrize("base", ["-1", "1e18", '"1"', str(2**61), str(2**70), "true"])
def test_a_base_time_that_cannot_be(read: Read, base: str) -> None:
    text = SOUND.text.replace(b"1727743122000000000", base.encode())
    trace = read(text)
    assert codes(trace) == {"broken_metadata": 1}
    same(trace, text)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"), (b"PK\x03\x04rest", "zip"), (b"\x80\x04\x95", "pickle"), (b"hello", "not JSON"),
        (b"{}", "traceEvents"), (b'{"traceEvents": 5}', "traceEvents"), (b"\x00\x01\x02", "not JSON"),
        (b'{"a": 1', "traceEvents"), (gzip.compress(b"", mtime=0), "not JSON"), (b"SQLite format 3\0junk", "export"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_line(read: Read, content: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        read(content)
    assert "rank0.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_stays_bounded_by_the_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_job(1, 60, seed=6)[0].text
    monkeypatch.setattr(stream, "SLICE_BYTES", 4096)
    largest = 0

    class Watched(EventStream):
        def _fill(self, size: int) -> None:
            super()._fill(size)
            nonlocal largest
            largest = max(largest, len(self._buffer))

    path = tmp_path / "t.json"
    path.write_bytes(made)
    monkeypatch.setattr(source, "CHUNK_BYTES", 1000)
    problems = DiagnosticCounts()
    count = sum(len(part.events) for part in Watched(source.chunks(path, problems), problems))
    assert count == len(json.loads(made)["traceEvents"])
    assert largest <= (1 << 16) + 4096 < len(made)  # the metadata's look-ahead, not the file


def test_recovery_with_short_look_ahead_agrees(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = insert(SOUND.text, b'  {"ph": "X", broken}')
    want = read(text)
    monkeypatch.setattr(recovery, "_LOOKAHEAD", 2048)
    answers = []
    for size in (2100, 3000, 5000):
        monkeypatch.setattr(stream, "SLICE_BYTES", size)
        got = read(text)
        answers.append((got.parts, codes(got), got.events))
    assert answers == [(want.parts, codes(want), want.events)] * 3
