"""Iterations from what was launched in them, against time lines whose steps are known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.timelines import COMM_STREAM, Timeline
from wirecost.trace.rank import RankTrace

from .conftest import Read


def spans(trace: RankTrace) -> list[tuple[float, float]]:
    """Iterations in microseconds since the first device event of the file's base."""
    base = 1_700_000_000_000_000_000
    return [((i.window.start_ns - base) / 1000, (i.window.end_ns - base) / 1000) for i in trace.iterations]


def sources(trace: RankTrace) -> set[str]:
    return {i.window.source for i in trace.iterations}


def behind(steps: int, lag: float, step_us: float = 100) -> Timeline:
    """A host that launches each step at once and a device that works `lag` later, without a gap."""
    line = Timeline()
    for k in range(steps):
        line.step(k, k * step_us, step_us)
        for part in range(4):
            start = lag + k * step_us + part * step_us / 4
            line.device(start, step_us / 4, launched=k * step_us + 10 + part)
    return line


@pytest.mark.parametrize("lag", [20, 90, 350])
def test_a_device_that_lags_behind_its_host_has_the_steps_it_was_given(read: Read, lag: float) -> None:
    trace = read(behind(4, lag).text())
    assert sources(trace) == {"launches"}
    assert spans(trace) == [(lag + 100 * k, lag + 100 * (k + 1)) for k in range(4)]


def test_backward_on_another_thread_belongs_to_the_step(read: Read) -> None:
    line = Timeline()
    for k in range(3):
        line.step(k, 100 * k, 100)
        line.device(100 * k + 5, 30, launched=100 * k + 1)
        line.gpu_annotation(f"ProfilerStep#{k}", 100 * k + 5, 30)
        line.device(100 * k + 35, 50, launched=100 * k + 10, thread=1234)
        line.device(100 * k + 60, 45, "ncclDevKernel_AllReduce_Sum_f32(x)", stream=COMM_STREAM,
                    launched=100 * k + 20, thread=1234)  # fmt: skip
    trace = read(line.text())
    assert spans(trace) == [(5, 105), (105, 205), (205, 305)]
    assert [i.parts.overlapped_ns for i in trace.iterations] == [25_000] * 3


def test_data_that_is_copied_ahead_does_not_end_a_step_early(read: Read) -> None:
    """The next batch is copied on a stream of its own while the device still computes: by the first event alone the
    last step would last 160 us."""
    line = Timeline()
    for k in range(4):
        line.step(k, 100 * k, 100)
        line.device(
            100 * k + 1, 5, "Memcpy HtoD (Pinned -> Device)", stream=30, cat="gpu_memcpy", launched=100 * k
        )
        line.device(100 * k + 60, 100, launched=100 * k + 2)
    trace = read(line.text())
    assert spans(trace) == [(100 * k + 60, 100 * k + 160) for k in range(4)]


def test_a_pause_between_steps_is_in_no_step(read: Read) -> None:
    line = Timeline()
    for k, start in enumerate((0, 100, 1000, 1100)):
        line.step(k, start, 100)
        line.device(start + 10, 90, launched=start + 1)
    assert spans(read(line.text())) == [(10, 110), (110, 200), (1010, 1110), (1110, 1200)]


def test_a_step_that_launches_nothing_is_no_iteration(read: Read) -> None:
    line = behind(2, 20)
    line.step(2, 200, 100)
    trace = read(line.text())
    assert [i.window.name for i in trace.iterations] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert {p.code for p in trace.diagnostics} == {"step_without_work"}


def test_work_of_unknown_launch_inside_a_step_without_launches_is_not_given_to_another(read: Read) -> None:
    line = behind(2, 20)
    line.step(2, 200, 100)
    line.device(230, 40)
    assert sources(read(line.text())) == {"cpu_step"}


def test_one_correlation_id_in_two_processes_tells_nothing(read: Read) -> None:
    line = behind(3, 20)
    for event in [e for e in line.events if e["cat"] == "cuda_runtime"]:
        line.events.append(event | {"pid": 5})
    assert sources(read(line.text())) == {"cpu_step"}


def test_kernels_of_one_graph_launch_are_in_its_step(read: Read) -> None:
    line = Timeline()
    for k in range(3):
        line.step(k, 100 * k, 100)
        line.host("cudaGraphLaunch", 100 * k + 5, 20, correlation=1000 + k)
        for part in range(3):
            line.add("kernel", f"part{part}", 0, 7, 100 * k + 40 + 30 * part, 28, correlation=1000 + k)
    assert spans(read(line.text())) == [(40, 140), (140, 240), (240, 328)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    lag=st.integers(0, 400),
    lengths=st.lists(st.integers(20, 300), min_size=2, max_size=6),
    threads=st.integers(1, 3),
)
def test_windows_tile_and_start_with_their_first_event(
    lag: int, lengths: list[int], threads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from wirecost.trace import read

    line, at = Timeline(), 0
    firsts = []
    for k, length in enumerate(lengths):
        line.step(k, at, length)
        firsts.append(at + lag)
        for part in range(4):
            line.device(at + lag + part * length / 4, length / 4, launched=at + part, thread=part % threads)
        at += length
    folder = tmp_path_factory.mktemp("tiles")
    (trace,) = read(line.write(folder)).traces
    got = spans(trace)
    assert [start for start, _ in got] == firsts
    assert all(a[1] == b[0] for a, b in itertools.pairwise(got))
    assert got[-1][1] == lag + at


def annotated(name: str, length: float, *, gpu: bool = False, launched: bool = True) -> Timeline:
    """Five iterations of 100 us of which `length` is annotated."""
    line = Timeline()
    for k in range(5):
        (line.gpu_annotation if gpu else line.annotation)(name.replace("%", str(k)), 100 * k, length)
        for part in range(10):
            line.device(100 * k + 10 * part, 10, launched=100 * k + 10 * part if launched else None)
    return line


@pytest.mark.parametrize("name", ["train_step", "execute_new_%_cached_0", "## step % ##"])
def test_annotations_that_tile_the_recording_are_iterations(read: Read, name: str) -> None:
    trace = read(annotated(name, 99).text())
    assert (len(trace.iterations), sources(trace)) == (5, {"launches"})
    assert "window_inferred" in {p.code for p in trace.diagnostics}
    assert sources(read(annotated(name, 99, launched=False).text())) == {"cpu_annotation"}
    assert sources(read(annotated(name, 99, gpu=True, launched=False).text())) == {"gpu_annotation"}


@pytest.mark.parametrize(
    ("name", "length"),
    [("forward", 60), ("train_step", 80), ("aten::copy_, op_id = %", 99), ("aten::linear", 99),
     ("autograd::engine::evaluate_function: MmBackward0", 99), ("Optimizer.step#AdamW.step", 99),
     ("DistributedDataParallel.forward", 99), ("nccl:all_reduce", 99)],
)  # fmt: skip
def test_what_does_not_tile_the_recording_or_is_an_operator_is_no_iteration(
    read: Read, name: str, length: float
) -> None:
    assert read(annotated(name, length).text()).iterations == []
    assert read(annotated(name, length, gpu=True, launched=False).text()).iterations == []
