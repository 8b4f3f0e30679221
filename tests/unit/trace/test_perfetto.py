"""The exported trace is well-formed, keeps the original events, and its tracks say what the tables say."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hostile import HOSTILE, write_hostile_job
from support.perfetto import ns, overlapping, read_strictly, tracks
from support.tracefiles import make_job
from wirecost.trace import TraceError, TraceSet, read
from wirecost.trace.originals import us
from wirecost.trace.perfetto import write_perfetto


def load(folder: Path, *jobs: Any, **options: Any) -> TraceSet:
    folder.mkdir()
    for made in make_job(*jobs, **options):
        (folder / f"rank{made.rank}.json").write_bytes(made.text)
    return read(folder, timeline=10**6)


@pytest.mark.parametrize("name", ["all.json", "all.json.gz"])
def test_it_is_well_formed_and_complete(tmp_path: Path, name: str) -> None:
    traces = load(tmp_path / "job", 3, 4, late=1)
    count = write_perfetto(traces, tmp_path / name)
    document = read_strictly(tmp_path / name)
    assert len(document["traceEvents"]) == count
    assert overlapping(document) == 0
    originals = Counter(
        e["name"] for e in document["traceEvents"] if not e.get("cat", "wirecost").startswith("wirecost")
    )
    written = Counter(
        e["name"]
        for path in (tmp_path / "job").iterdir()
        for e in json.loads(path.read_text())["traceEvents"]
        if e["ph"] in "Xi"
    )
    assert written.total() > 100
    assert originals == written
    assert list(tmp_path.glob("*.partial")) == []


def test_a_device_a_pipe_or_a_link_is_not_replaced(tmp_path: Path) -> None:
    traces = load(tmp_path / "job", 1, 2)
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    count = write_perfetto(traces, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert len(read_strictly(tmp_path / "target.json")["traceEvents"]) == count
    os.mkfifo(tmp_path / "pipe")
    reader = threading.Thread(target=(tmp_path / "pipe").read_bytes)
    reader.start()
    write_perfetto(traces, tmp_path / "pipe")
    reader.join()
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(TraceError, match="full: can't be written: No space left"):
        write_perfetto(traces, tmp_path / "full")
    assert (tmp_path / "full").is_symlink()
    assert Path("/dev/full").is_char_device()


def test_the_breakdown_track_sums_to_the_parts(tmp_path: Path) -> None:
    traces = load(tmp_path / "job", 2, 5, seed=7)
    write_perfetto(traces, tmp_path / "all.json")
    found = tracks(read_strictly(tmp_path / "all.json"), "wirecost breakdown")
    assert sorted(found) == ["rank 0: wirecost", "rank 1: wirecost"]
    for trace in traces.traces:
        sums: Counter[str] = Counter()
        for event in found[f"rank {trace.rank}: wirecost"]:
            sums[event["name"]] += ns(event["dur"])
        p = trace.parts
        assert p is not None
        assert sums == Counter({
            "compute only": p.compute_only_ns, "compute and communication": p.overlapped_ns,
            "exposed communication": p.exposed_comm_ns, "exposed copies": p.exposed_memory_ns, "idle": p.idle_ns,
        })  # fmt: skip


def test_waits_iterations_and_causes_are_on_the_clock_of_the_events(tmp_path: Path) -> None:
    traces = load(tmp_path / "job", 4, 5, late=2)
    write_perfetto(traces, tmp_path / "all.json")
    document = read_strictly(tmp_path / "all.json")
    waits = tracks(document, "wirecost waits")
    assert sum(map(len, waits.values())) == sum(int((m.wait_ns > 0).sum()) for m in traces.matched)
    collectives = {
        (e["pid"], ns(e["ts"])) for e in document["traceEvents"] if "nccl" in e["name"] and e["ph"] == "X"
    }
    starts = {start for _, start in collectives}
    listed = [e for events in waits.values() for e in events]
    assert listed
    assert all(ns(e["ts"]) in starts and e["name"] == "all_reduce waits for rank 2" for e in listed)
    steps = tracks(document, "wirecost iterations")
    assert [e["name"] for e in steps["rank 0: wirecost"]] == [f"ProfilerStep#{n}" for n in range(3, 8)]
    losses = [e for events in tracks(document, "wirecost losses").values() for e in events]
    assert any("Rank 2" in e["name"] for e in losses)
    why = [e for events in tracks(document, "wirecost causes").values() for e in events]
    assert len(why) == sum(int(((t.calls.cause >= 0) & (t.calls.exposed_ns > 0)).sum()) for t in traces.traces) > 0


@given(st.integers(0, 2**50))
def test_times_come_back_whole_however_a_reader_cuts(value: int) -> None:
    assert ns(Decimal(repr(us(value)))) == value


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    write_hostile_job(tmp_path / "job")
    write_perfetto(read(tmp_path / "job", timeline=10**6), tmp_path / "all.json")
    assert any(e["name"] == HOSTILE for e in read_strictly(tmp_path / "all.json")["traceEvents"])


def test_flows_of_two_ranks_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for made in make_job(2, 2):
        document = json.loads(made.text)
        for phase, ts in (("s", 1_000_001.5), ("f", 1_000_003.25)):
            document["traceEvents"].append(
                {"ph": phase, "id": 77, "pid": 99, "tid": 99, "ts": ts, "cat": "ac2g", "name": "ac2g", "bp": "e"}
            )
        (tmp_path / "job" / f"rank{made.rank}.json").write_text(json.dumps(document))
    write_perfetto(read(tmp_path / "job", timeline=10**6), tmp_path / "all.json")
    flows = [e for e in read_strictly(tmp_path / "all.json")["traceEvents"] if e["ph"] in "sf"]
    assert len(flows) == 4
    assert len({e["id"] for e in flows}) == 2
    for number in {e["id"] for e in flows}:
        assert sorted(e["ph"] for e in flows if e["id"] == number) == ["f", "s"]


def test_a_broken_trace_gives_its_sound_events(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    text = make_job(1, 3)[0].text
    (tmp_path / "job" / "rank0.json").write_bytes(text[: int(0.8 * len(text))])
    write_perfetto(read(tmp_path / "job", timeline=10**6), tmp_path / "all.json")
    assert len(read_strictly(tmp_path / "all.json")["traceEvents"]) > 20


def test_a_trace_that_is_gone_gives_its_device_events(tmp_path: Path) -> None:
    traces = load(tmp_path / "job", 1, 3)
    (tmp_path / "job" / "rank0.json").unlink()
    write_perfetto(traces, tmp_path / "all.json")
    document = read_strictly(tmp_path / "all.json")
    assert sum(e.get("cat") == "kernel" for e in document["traceEvents"]) == 15


def test_it_never_overwrites_a_trace(tmp_path: Path) -> None:
    traces = load(tmp_path / "job", 2, 2)
    before = (tmp_path / "job" / "rank1.json").read_bytes()
    with pytest.raises(TraceError, match="is one of the traces"):
        write_perfetto(traces, tmp_path / "job" / "rank1.json")
    assert (tmp_path / "job" / "rank1.json").read_bytes() == before


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be written"):
        write_perfetto(load(tmp_path / "job", 1, 1), tmp_path / "nowhere" / "all.json")
