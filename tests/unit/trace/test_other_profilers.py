"""Profilers that write no categories: JAX's and Ascend's; and files that are no traces at all."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from support.timelines import Timeline
from wirecost.diagnostics import loses_data
from wirecost.trace import TraceError, TraceSet, read
from wirecost.trace.source import ForeignFile, NoDeviceEvents


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def row(pid: Any, process: str, threads: dict[Any, str]) -> list[dict[str, Any]]:
    named = [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": n}}
        for tid, n in threads.items()
    ]
    return [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}}, *named]


def event(pid: Any, tid: Any, name: str, ts: Any, dur: Any, **args: str) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name} | (
        {"args": args} if args else {}
    )


def jax(devices: int = 1, *, names_last: bool = False) -> list[dict[str, Any]]:
    """Two training steps on GPUs: a product of 300 us, and an all-reduce of 200 us of which 100 overlap it."""
    names, events = row(701, "/host:CPU", {1: "python3"}), []
    for d in range(devices):
        names += row(
            d + 1, f"/device:GPU:{d} Fancy", {14: "Stream #14(Compute)", 15: "Stream #15(Compute)", 99: "XLA Ops"}
        )
    for k in range(2):
        at = 1000.0 * k
        events.append(event(701, 1, "train", at, 40.25, step_num=str(k)))
        for d in range(devices):
            ids = {"correlation_id": str(10 * k + d + 1)}
            events.append(event(701, 1, "cuGraphLaunch", at + 5 + d, 3.0, **ids))
            events.append(
                event(d + 1, 14, "gemm_fusion_dot", at + 100, 300.00000000000006, hlo_op="fusion.1", **ids)
            )
            events.append(event(d + 1, 15, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 300, 200.0, **ids))
            events.append(event(d + 1, 15, "my_ring_kernel", at + 600, 10, hlo_op="all-gather-start.7", **ids))
            events.append(event(d + 1, 14, "MemcpyD2D", at + 700, 10, **ids))
            events.append(event(d + 1, 99, "all of it again", at + 100, 600.0))
    return events + names + [{}] if names_last else names + events + [{}]


@pytest.mark.parametrize("names_last", [False, True])
def test_the_streams_of_a_jax_profile_are_read(tmp_path: Path, names_last: bool) -> None:
    path = tmp_path / "vm.trace.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": jax(names_last=names_last)}).encode())
    )
    (trace,) = read(path).traces
    assert trace.parts is not None
    assert trace.parts.model_dump() == {
        "window_ns": 1_610_000, "compute_only_ns": 400_000, "overlapped_ns": 200_000, "exposed_comm_ns": 220_000,
        "exposed_memory_ns": 20_000, "idle_ns": 770_000, "unknown_ns": 0,
    }  # fmt: skip
    assert [(i.window.name, i.window.source, i.parts.window_ns) for i in trace.iterations] == [
        ("train 0", "launches", 1_000_000), ("train 1", "launches", 610_000),
    ]  # fmt: skip
    assert [trace.calls.ops[o] for o in trace.calls.op] == ["all_reduce", "all_gather"] * 2
    assert {p.code for p in trace.diagnostics} == {"bytes_unknown"}


def test_each_gpu_of_a_jax_process_is_a_rank(tmp_path: Path) -> None:
    traces = read(write(tmp_path / "a.trace.json", {"traceEvents": jax(devices=2)}))
    assert [(t.rank, len(t.iterations)) for t in traces.traces] == [(0, 2), (1, 2)]


def test_a_profile_of_tpus_is_refused_by_name(tmp_path: Path) -> None:
    events = [*row(1, "/device:TPU:0", {1: "XLA Ops"}), event(1, 1, "fusion", 1, 5)]
    with pytest.raises(TraceError, match="JAX/XLA profile of TPU devices"):
        read(write(tmp_path / "a.json", {"traceEvents": events}))


def ascend(offset: int = 0) -> list[dict[str, Any]]:
    """Computes 100 us, reduces 80.5 us, of which 20 overlap a product; tasks that are no work lie beside them."""

    def at(us: float) -> str:
        return f"{1723545784535521 + offset + int(us)}.{round(us % 1 * 1000):03d}"

    return [
        *row(12, "Ascend Hardware", {2: "Stream 2", 3: "Stream 3"}),
        *row(13, "Communication", {1: "Group 0 Communication", 5: "Plane 0"}),
        *row(14, "Overlap Analysis", {0: "Computing", 1: "Communication"}),
        *row(15, "Python", {9: "Thread 9"}),
        event(15, 9, "ProfilerStep#4", at(0), 400.0),
        event(12, 2, "aclnnMatmul_MatMulV2", at(0.354), 100.0, **{"Task Type": "AI_CORE"}),
        event(13, 1, "hcom_allReduce__304_0_1", at(100.354), 80.5, connection_id="35", data_type="BFP16"),
        event(13, 5, "Reduce_Inline", at(110), 40.0),
        event(12, 3, "Notify_Wait", at(100), 80.0, **{"Task Type": "NOTIFY_WAIT"}),
        event(12, 3, "EVENT_WAIT", at(0), 100.0, **{"Task Type": "EVENT_WAIT"}),
        event(12, 2, "aclnnMatmul_MatMulV2", at(160.854), 60.0, **{"Task Type": "MIX_AIC"}),
        event(12, 2, "MEMCPY_ASYNC", at(300), 10.0, **{"Task Type": "MEMCPY_ASYNC"}),
        event(14, 0, "Computing", at(0), 100.0),
        event(14, 1, "Communication", at(100), 80.5),
    ]  # fmt: skip


def test_an_ascend_trace_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    write(folder.parent / "profiler_info_6.json", {"config": {}})
    (trace,) = read(write(folder / "trace_view.json", ascend())).traces
    assert trace.parts is not None
    assert (trace.parts.compute_ns, trace.parts.comm_ns, trace.parts.overlapped_ns) == (160_000, 80_500, 20_000)
    assert trace.parts.exposed_memory_ns == 10_000
    assert (trace.rank, trace.rank_source) == (6, "file name")
    assert [i.window.name for i in trace.iterations] == ["ProfilerStep#4"]
    assert [trace.calls.ops[o] for o in trace.calls.op] == ["all_reduce"]
    assert {p.code for p in trace.diagnostics} <= {"bytes_unknown", "cut_step"}


FOREIGN: list[tuple[str, object, str]] = [
    ("et.json", {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}, "execution trace"),
    ("nccl_trace_rank_1.json", {"version": "2.9", "pg_config": {}, "entries": []}, "Flight Recorder"),
    ("snapshot.json", {"segments": [], "device_traces": []}, "memory snapshot"),
    ("empty.json", {"traceEvents": []}, "nothing was recorded"),
    ("list.json", [], "nothing was recorded"),
    ("memory.json", [[1, 2, [3, 4]], [5, 6, [7, 8]]], "memory time line"),
    ("horovod.json", [{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 1, "pid": 1}, {"ph": "E", "ts": 5, "pid": 1}], "Horovod"),
    ("plugin.json", [{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "ts": 1.5}], "NCCL's profiler plugin"),
    ("other.json", {"hello": 1, "world": []}, "it has 'hello', 'world'"),
    ("profile.json", {"nodes": [], "samples": [], "stackFrames": []}, "CPU profile"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "what"), FOREIGN)
@pytest.mark.parametrize("packed", [False, True])
def test_other_json_is_refused_by_name(
    tmp_path: Path, name: str, content: object, what: str, packed: bool
) -> None:
    path = tmp_path / (name + ".gz" * packed)
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(TraceError, match=what) as refused:
        read(path)
    message = str(refused.value)
    assert "\n" not in message and message.count(str(path)) == 1


class _Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("loaded",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("packed", [False, True])
def test_pickles_are_named_and_never_loaded(
    tmp_path: Path, protocol: int, packed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = {"version": "2.9", "pg_config": {"0": {"desc": "default_pg"}}, "entries": [{"x": _Trap()}]}
    path = tmp_path / "nccl_trace_rank_0"
    data = pickle.dumps(dump, protocol=protocol)
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(ForeignFile, match=r"Flight Recorder dump.*never loaded"):
        read(path)
    snapshot = tmp_path / "memory.pickle"
    snapshot.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}, protocol=protocol))
    with pytest.raises(ForeignFile, match=r"memory snapshot.*never loaded"):
        read(snapshot)
    assert "loaded" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [("r.nsys-rep", b"\x00\x01", "nsys export --type sqlite r.nsys-rep"), ("h.xplane.pb", b"\x0a\x05", "XSpace"),
     ("chakra.0.et", b"\x0c\x12", "Chakra"), ("feeder.json", b'{"workload_graph": []}', "Chakra"),
     ("x.zip.json", b"PK\x03\x04", "zip"), ("e.json", b"", "empty")],
)  # fmt: skip
def test_binary_files_are_refused_with_what_to_give(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=what):
        read(tmp_path / name)


def test_a_trace_of_the_host_says_how_to_record_the_device(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=2)
    line.step(1, 0, 100)
    line.operator("aten::mm", 10, 50)
    line.annotation("nccl:all_reduce", 60, 2)
    with pytest.raises(NoDeviceEvents, match=r"1 collective of the host alone.*ProfilerActivity\.CUDA"):
        read(line.write(tmp_path))


def test_other_files_in_a_directory_of_traces_are_left_out_and_said(tmp_path: Path) -> None:
    line = Timeline(rank=0, world=2)
    line.device(0, 10)
    line.write(tmp_path)
    write(tmp_path / "et_rank1.json", {"schema": "1", "nodes": []})

    def codes(traces: TraceSet) -> dict[str, bool]:
        return {p.code: loses_data(p) for p in traces.run_diagnostics}

    assert codes(read(tmp_path)) == {"other_file": False}
    assert codes(read([tmp_path / "rank0.json", tmp_path / "et_rank1.json"])) == {"unreadable": True}
