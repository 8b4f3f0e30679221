"""In a run without a device, the time in which an operator waits for a collective is no computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.timelines import Timeline
from wirecost.trace import read
from wirecost.trace.host_compute import HostCompute, computes


@pytest.mark.parametrize(
    "name",
    ["aten::mm", "mkldnn::linear", "my_library::kernel", "CompiledFunction", "Torch-Compiled Region: 0/0"],
)
def test_operators_of_libraries_and_compiled_regions_compute(name: str) -> None:
    assert computes(name)


@pytest.mark.parametrize(
    "name",
    [
        "autograd::engine::evaluate_function: AddmmBackward0",
        "RegisterPostBackwardFunctionBackward",
        "All2All_Wait",
        "c10d::_allgather_base_",
        "_c10d_functional::wait_tensor",
        "record_param_comms",
    ],
)
def test_autograd_functions_and_collectives_do_not(name: str) -> None:
    assert not computes(name)


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 60, depth: int = 4) -> list[tuple[str, int, int]]:
    """Operators that nest, in order of start."""
    operators = []
    at = start
    while depth and at < end and draw(st.booleans()):
        first = draw(st.integers(at, end - 1))
        last = draw(st.integers(first + 1, end))
        operators.append((draw(st.sampled_from(["aten::mm", "Wait"])), first, last))
        operators += draw(nested(first, last, depth - 1))
        at = last
    return operators


@given(nested())
def test_the_innermost_operator_counts_at_every_instant(
    operators: list[tuple[str, int, int]],
) -> None:
    compute = HostCompute()
    # Equal spans keep their order: the outer one comes first.
    for name, start, end in operators:
        compute.add(name, start, end, 0)
    expected = set()
    for instant in range(60):
        running = [name for name, start, end in operators if start <= instant < end]
        if running and running[-1] == "aten::mm":
            expected.add(instant)
    found = [instant for start, end in compute.spans() for instant in range(start, end)]
    assert sorted(found) == sorted(set(found)) == sorted(expected)


def test_a_wait_in_a_hook_of_backward_is_exposed_communication(tmp_path: Path) -> None:
    """FSDP's hook waits inside of the autograd engine's operator."""
    t = Timeline(rank=0, world=2)
    t.step(1, 0, 100)
    t.operator("autograd::engine::evaluate_function: AddmmBackward0", 10, 60)
    t.operator("AddmmBackward0", 50, 20)
    t.operator("aten::mm", 50, 20)
    t.annotation("gloo:all_gather", 15, 40, thread=2)
    (trace,) = read(t.write(tmp_path), window="cpu").traces
    (iteration,) = trace.iterations
    parts = iteration.parts
    assert (parts.exposed_comm_ns, parts.overlapped_ns, parts.compute_only_ns) == (35_000, 5_000, 15_000)


def test_threads_compute_side_by_side() -> None:
    compute = HostCompute()
    compute.add("Wait", 0, 10, 0)
    compute.add("aten::mm", 5, 8, 1)
    compute.add("aten::mm", 2, 4, 0)
    assert compute.spans() == [(2, 4), (5, 8)]
