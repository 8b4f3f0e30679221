"""Which stretches are iterations, and where that is said to come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wirecost.trace
from support.timelines import Timeline
from support.tracefiles import make_job
from wirecost.trace import TraceError
from wirecost.trace.rank import RankTrace
from wirecost.trace.windows import check_choice

from .conftest import Read

BOTH = make_job(2, 3, seed=21, gpu_steps=True)[0]


def edited(text: bytes, **change: object) -> bytes:
    """The trace with its events passed through `change["keep"]` and `change["add"]` appended."""
    document = json.loads(text)
    keep = change.get("keep", lambda _: True)
    document["traceEvents"] = [e for e in document["traceEvents"] if keep(e)] + list(change.get("add", []))  # pyright: ignore
    return json.dumps(document).encode()


def sources(trace: RankTrace) -> list[tuple[str, str]]:
    return [(i.window.name, i.window.source) for i in trace.iterations]


def note(name: str, ts: float, dur: float, cat: str = "gpu_user_annotation", tid: int = 7) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur}


def unlaunched(text: bytes) -> bytes:
    """The trace without the host calls that launched its kernels."""
    return edited(text, keep=lambda e: e.get("cat") != "cuda_runtime")


def test_launches_come_first_and_can_be_overridden(read: Read) -> None:
    names = BOTH.steps
    assert sources(read(BOTH.text)) == [(n, "launches") for n in names]
    assert sources(read(BOTH.text, window="launches")) == [(n, "launches") for n in names]
    assert sources(read(BOTH.text, window="cpu")) == [(n, "cpu_step") for n in names]
    assert sources(read(BOTH.text, window="gpu")) == [(n, "gpu_step") for n in names]
    assert sources(read(BOTH.text, window="whole")) == []
    assert sources(read(BOTH.text, window="name:Step#4$")) == [(names[1], "launches")]


@pytest.mark.parametrize(("works_us", "source"), [(90, "cpu_step"), (110, "launches")])
def test_a_single_step_is_the_hosts_if_the_device_works_in_a_small_part_of_it(
    works_us: float, source: str, tmp_path: Path
) -> None:
    line = Timeline(rank=0)
    line.step(1, 0, 1000)
    line.device(10, works_us, launched=5)
    (trace,) = wirecost.trace.read(line.write(tmp_path)).traces
    assert sources(trace) == [("ProfilerStep#1", source)]
    assert trace.iterations[0].parts.window_ns == (1_000_000 if source == "cpu_step" else works_us * 1000)


def thinned(folder: Path, *works: tuple[float, float]) -> RankTrace:
    """Steps of 1000 us, each with work over (from, to)."""
    line = Timeline(rank=0)
    for number, (start, end) in enumerate(works):
        line.step(number, 1000 * number, 1000)
        line.device(1000 * number + start, end - start, launched=1000 * number + start - 1)
    (trace,) = wirecost.trace.read(line.write(folder)).traces
    return trace


@pytest.mark.parametrize(("works_us", "source"), [(40.0, "cpu_step"), (60.0, "launches")])
def test_steps_are_the_hosts_if_the_device_works_in_a_small_part_of_them(
    works_us: float, source: str, tmp_path: Path
) -> None:
    line = Timeline(rank=0)
    for number, first in enumerate((100, 700, 300)):  # of each step a launch that need not be its first one
        line.step(number, 1000 * number, 1000)
        for at in (first, first + 200):
            line.device(1000 * number + at, works_us, launched=1000 * number + at - 1)
    (trace,) = wirecost.trace.read(line.write(tmp_path)).traces
    assert [s for _, s in sources(trace)] == [source] * 3
    lengths = [i.parts.window_ns for i in trace.iterations]
    assert (lengths == [1_000_000] * 3) == (source == "cpu_step")


@pytest.mark.parametrize("scrap", [0, 1, 2])
def test_steps_are_the_hosts_if_what_one_of_them_launched_covers_a_small_part_of_it(
    scrap: int, tmp_path: Path
) -> None:
    works = [(100.0, 950.0)] * 3
    assert [s for _, s in sources(thinned(tmp_path, *works))] == ["launches"] * 3
    works[scrap] = (600.0, 690.0)
    trace = thinned(tmp_path, *works)
    assert [s for _, s in sources(trace)] == ["cpu_step"] * 3
    assert [i.parts.window_ns for i in trace.iterations] == [1_000_000] * 3
    works[scrap] = (600.0, 710.0)
    assert [s for _, s in sources(thinned(tmp_path, *works))] == ["launches"] * 3


def test_what_is_missing_of_a_step_that_was_cut_off_says_nothing_about_the_others(tmp_path: Path) -> None:
    line = Timeline(rank=0)
    for number, (start, end) in enumerate([(100.0, 950.0), (100.0, 950.0), (100.0, 120.0)]):
        line.step(number, 1000 * number, 1000)
        line.device(1000 * number + start, end - start, launched=1000 * number + start - 1)
    for launch in range(10):  # their kernels had not run when the recording ended
        line.host("cudaLaunchKernel", 2200 + 10 * launch, 3, correlation=1000 + launch)
    (trace,) = wirecost.trace.read(line.write(tmp_path)).traces
    assert [s for _, s in sources(trace)] == ["launches"] * 3
    assert [i.window.cut for i in trace.iterations] == [False, False, True]


def test_a_cut_step_stays_cut_where_the_steps_are_the_hosts(tmp_path: Path) -> None:
    line = Timeline(rank=0)
    for number in range(3):
        line.step(number, 1000 * number, 1000)
        line.device(1000 * number + 500, 80, launched=1000 * number + 499)
    for launch in range(10):
        line.host("cudaLaunchKernel", 2600 + 10 * launch, 3, correlation=1000 + launch)
    (trace,) = wirecost.trace.read(line.write(tmp_path)).traces
    assert [s for _, s in sources(trace)] == ["cpu_step"] * 3
    assert [i.window.cut for i in trace.iterations] == [False, False, True]


def test_without_launches_gpu_annotations_that_cover_the_work_are_the_steps(read: Read) -> None:
    text = unlaunched(BOTH.text)
    assert sources(read(text)) == [(n, "gpu_step") for n in BOTH.steps]
    assert sources(read(text, window="name:Step#4$")) == [(BOTH.steps[1], "gpu_annotation")]
    assert "window_not_found" in {p.code for p in read(text, window="launches").diagnostics}


def test_without_launches_a_step_without_gpu_annotation_makes_all_of_them_cpu_steps(read: Read) -> None:
    text = edited(
        unlaunched(BOTH.text),
        keep=lambda e: not (e.get("cat") == "gpu_user_annotation" and e["name"] == BOTH.steps[1]),
    )
    trace = read(text)
    assert sources(trace) == [(n, "cpu_step") for n in BOTH.steps]
    assert trace.diagnostics == []


def test_annotations_of_one_step_on_several_streams_are_spanned(read: Read) -> None:
    trace = read(BOTH.text, window="gpu")
    window = trace.iterations[0].window
    start = (window.start_ns - 1_727_743_122_000_000_000) / 1000
    more = read(edited(BOTH.text, add=[note(BOTH.steps[0], start - 1, 0.5, tid=20)]), window="gpu")
    assert more.iterations[0].window.start_ns == window.start_ns - 1000
    assert more.iterations[0].window.end_ns == window.end_ns
    assert more.diagnostics == []


def scraps(text: bytes) -> bytes:
    """The trace with annotations of the GPU that cover next to nothing of a step."""
    document = json.loads(text)
    for event in document["traceEvents"]:
        if event.get("cat") == "gpu_user_annotation":
            event["dur"] = 0.5
    return json.dumps(document).encode()


def test_scraps_of_gpu_annotations_are_no_steps_unless_asked_for(read: Read) -> None:
    assert sources(read(scraps(BOTH.text))) == [(n, "launches") for n in BOTH.steps]
    assert sources(read(scraps(unlaunched(BOTH.text)))) == [(n, "cpu_step") for n in BOTH.steps]
    trace = read(scraps(BOTH.text), window="gpu")
    assert {p.code: p.count for p in trace.diagnostics} == {"bare_gpu_step": 3}
    assert [i.window.end_ns - i.window.start_ns for i in trace.iterations] == [500] * 3


def no_steps(event: dict[str, object]) -> bool:
    return "ProfilerStep" not in str(event.get("name"))


def test_without_steps_repeated_gpu_annotations_are_taken_and_said(read: Read) -> None:
    base = read(BOTH.text, window="cpu")
    spans = [
        ((i.window.start_ns - 1_727_743_122_000_000_000) / 1000, i.parts.window_ns / 1000) for i in base.iterations
    ]
    added = [note(f"train_step {k}", ts, dur) for k, (ts, dur) in enumerate(spans)]
    added += [note("layer", ts, 3) for ts, _ in spans]  # repeats, and covers little
    trace = read(edited(BOTH.text, keep=no_steps, add=added))
    assert sources(trace) == [(f"train_step {k}", "gpu_annotation") for k in range(3)]
    assert [i.parts for i in trace.iterations] == [i.parts for i in base.iterations]
    assert {p.code: p.count for p in trace.diagnostics} == {"window_inferred": 3}


def test_without_anything_the_whole_window_stands(read: Read) -> None:
    trace = read(edited(BOTH.text, keep=no_steps))
    assert trace.iterations == []
    assert trace.parts is not None


def test_repeated_names_are_numbered(read: Read) -> None:
    added = [note("fwd", 1_000_003, 9), note("fwd", 1_000_060, 9)]
    trace = read(edited(unlaunched(BOTH.text), add=added), window="name:^fwd$")
    assert sources(trace) == [("fwd#0", "gpu_annotation"), ("fwd#1", "gpu_annotation")]


def test_a_step_that_outlasts_the_recording_is_flagged_not_dropped(read: Read) -> None:
    document = json.loads(BOTH.text)
    for event in document["traceEvents"]:
        if event.get("cat") == "user_annotation" and event["name"] == BOTH.steps[-1]:
            event["dur"] += 1000
    trace = read(json.dumps(document).encode(), window="cpu")
    assert [i.window.cut for i in trace.iterations] == [False, False, True]
    assert {p.code: p.count for p in trace.diagnostics} == {"cut_step": 1}


def test_old_profilers_write_steps_among_the_operators(read: Read) -> None:
    document = json.loads(make_job(1, 2, seed=3)[0].text)
    for event in document["traceEvents"]:
        event["cat"] = {"user_annotation": "Operator", "kernel": "Kernel", "gpu_memcpy": "Memcpy"}.get(
            event.get("cat"), event.get("cat")
        )
        if event["cat"] is None:
            del event["cat"]
    trace = read(json.dumps(document).encode())
    assert [s for _, s in sources(trace)] == ["launches"] * 2
    assert trace.diagnostics == []


@pytest.mark.parametrize("choice", ["steps", "", "name:(", "gpu "])
def test_an_unknown_window_is_refused(choice: str) -> None:
    with pytest.raises(TraceError, match="window"):
        check_choice(choice)


def test_a_name_finds_annotations_of_the_cpu_where_the_gpu_has_none(read: Read) -> None:
    at = 1_000_000
    added = [note("train_step", at + 100 * k, 90, cat="user_annotation", tid=99) for k in range(2)]
    trace = read(edited(unlaunched(BOTH.text), add=added), window="name:^train_step$")
    assert sources(trace) == [("train_step#0", "cpu_annotation"), ("train_step#1", "cpu_annotation")]
    trace = read(edited(BOTH.text, add=added), window="name:^train_step$")
    assert [s for _, s in sources(trace)] == ["launches"] * len(trace.iterations)


@pytest.mark.parametrize("choice", ["name:^nothing$", "gpu"])
def test_an_asked_for_window_that_is_not_there_is_said(read: Read, choice: str) -> None:
    (made,) = make_job(1, 1, seed=22)
    trace = read(made.text, window=choice)
    assert trace.iterations == []
    assert "window_not_found" in {p.code for p in trace.diagnostics}
    assert "window_not_found" not in {p.code for p in read(made.text).diagnostics}
