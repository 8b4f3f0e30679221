"""What counts as communication by evidence: arguments, annotations, operators; then by name; and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from support.timelines import COMM_STREAM, GEMM, Timeline
from wirecost.trace.evidence import KernelUse
from wirecost.trace.rank import RankTrace

from .conftest import Read

STRANGE = "void my_lab::exchange<float>(float*)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
ARGUMENTS: dict[str, Any] = {
    "Collective name": "allreduce",
    "In msg nelems": 4,
    "Out msg nelems": 4,
    "dtype": "Float",
    "Group size": 2,
}


def use(trace: RankTrace, name: str) -> KernelUse:
    (found,) = [u for u in trace.kernels if u.name == name]
    return found


def ops(trace: RankTrace) -> list[str]:
    return [trace.calls.ops[o] for o in trace.calls.op]


def doubts(trace: RankTrace) -> dict[str, str]:
    return {p.code: p.message for p in trace.diagnostics if p.code == "looks_like_communication"}


def test_arguments_tell(read: Read) -> None:
    line = Timeline()
    line.device(0, 100)
    line.device(100, 50, STRANGE, stream=COMM_STREAM, **ARGUMENTS)
    line.device(150, 50, FILL, stream=COMM_STREAM, **ARGUMENTS)
    trace = read(line.text())
    assert (use(trace, STRANGE).communicates, use(trace, STRANGE).why) == (True, "arguments: all_reduce")
    assert not use(trace, FILL).communicates
    assert (ops(trace), trace.calls.bytes.tolist()) == (["all_reduce"], [16])


@pytest.mark.parametrize("prefix", ["nccl", "xccl", "hccl", "NCCL", "gloo"])
def test_the_annotation_around_tells(read: Read, prefix: str) -> None:
    line = Timeline()
    line.gpu_annotation(f"{prefix}:_all_gather_base", 99.999, 200.002, stream=COMM_STREAM)
    line.device(100, 50, STRANGE, stream=COMM_STREAM)
    line.device(150, 20, FILL, stream=COMM_STREAM)
    line.device(170, 100, "Memcpy PtoP (Device -> Device)", stream=COMM_STREAM, cat="gpu_memcpy")
    line.device(270, 10, "Memcpy DtoD (Device -> Device)", stream=COMM_STREAM, cat="gpu_memcpy")
    line.device(280, 10, "Memset (Device)", stream=COMM_STREAM, cat="gpu_memset")
    line.device(120, 100, STRANGE + " ")  # at the same time on another stream
    line.device(400, 10, STRANGE + "2", stream=COMM_STREAM)
    trace = read(line.text())
    assert {u.name for u in trace.kernels if u.communicates} == {STRANGE, "Memcpy PtoP (Device -> Device)"}
    assert ops(trace) == ["all_gather"] * 2
    assert doubts(trace) == {}


def test_the_operator_that_launched_it_tells(read: Read) -> None:
    line = Timeline()
    line.operator("vllm::all_reduce", 0, 50, external=5)
    line.operator("aten::mul", 20, 10, external=6)
    line.device(60, 40, STRANGE, launched=10, external=5)
    line.device(100, 40, STRANGE + "2", launched=25, external=6)
    line.device(140, 40, FILL, launched=40, external=5)
    trace = read(line.text())
    assert {u.name: u.why for u in trace.kernels if u.communicates} == {STRANGE: "operator: vllm::all_reduce"}
    assert ops(trace) == ["all_reduce"]


def test_copies_between_gpus_count_inside_an_operator_however_deep(read: Read) -> None:
    line = Timeline()
    line.operator("symm_mem::fused_all_gather_matmul", 0, 50, external=5)
    line.operator("aten::copy_", 20, 10, external=6)
    line.device(60, 40, "Memcpy PtoP (Device -> Device)", stream=9, cat="gpu_memcpy", launched=25, external=6)
    line.device(60, 90, GEMM, launched=35, external=7)
    trace = read(line.text())
    assert {u.name for u in trace.kernels if u.communicates} == {"Memcpy PtoP (Device -> Device)"}
    assert trace.parts is not None and trace.parts.overlapped_ns == 40_000


@pytest.mark.parametrize(
    "operator",
    ["aten::all_reduce_like", "fsdp::all_gather_copy_in", "_c10d_functional::wait_tensor", "prims::broadcast"],
)
def test_operators_that_only_copy_or_wait_tell_nothing(read: Read, operator: str) -> None:
    line = Timeline()
    line.operator(operator, 0, 50, external=5)
    line.device(60, 40, STRANGE, launched=10, external=5)
    assert len(read(line.text()).calls) == 0


def test_external_ids_that_are_correlation_ids_tell_nothing(read: Read) -> None:
    """PyTorch up to 2.1 wrote the correlation id as the external id, which is some operator's by chance."""
    line = Timeline()
    line.operator("c10d::allreduce_", 0, 5, external=1)
    line.device(60, 40, STRANGE, launched=30, external=1)
    assert len(read(line.text()).calls) == 0


def test_a_description_on_the_host_is_found_by_where_the_kernel_was_launched(read: Read) -> None:
    line = Timeline()
    line.operator("record_param_comms", 0, 50, **ARGUMENTS)
    line.device(60, 40, "ncclDevKernel_Generic_4(x)", stream=COMM_STREAM, launched=10)
    line.device(160, 40, "ncclDevKernel_Generic_4(x)", stream=COMM_STREAM, launched=110)
    trace = read(line.text())
    assert (ops(trace), trace.calls.bytes.tolist()) == (["all_reduce", "unknown"], [16, -1])


def test_what_looks_like_a_collective_but_counts_as_compute_is_named(read: Read) -> None:
    line = Timeline()
    line.device(0, 100, "ncclDevKernel_AllGather_RING_LL(x)", stream=COMM_STREAM)
    line.device(100, 190, "fused_gemm_all_reduce_kernel(x)")
    line.device(300, 10, "Memcpy PtoP (Device -> Device)", cat="gpu_memcpy")
    line.device(320, 10, "triton_poi_fused_add_all_gather_into_tensor_0")
    line.device(340, 10, "void at::native::(anonymous namespace)::peer_read(int)")
    trace = read(line.text())
    (message,) = doubts(trace).values()
    assert "1 x fused_gemm_all_reduce_kernel(x), 0.190 ms" in message and "Memcpy PtoP" in message
    assert "triton" not in message and "at::native" not in message
    told = read(line.text(), comm_patterns=("gemm_all_reduce", "PtoP"))
    assert doubts(told) == {}
    assert use(told, "fused_gemm_all_reduce_kernel(x)").why == "your pattern gemm_all_reduce"


def test_every_name_is_counted_with_its_class(read: Read) -> None:
    line = Timeline()
    for k in range(3):
        line.device(100 * k, 60)
        line.device(100 * k + 60, 20, "ncclDevKernel_AllGather_RING_LL(x)", stream=COMM_STREAM)
        line.device(100 * k + 80, 5, "Memset (Device)", cat="gpu_memset")
    got = [(u.name, u.kind, u.communicates, u.why, u.count, u.total_ns) for u in read(line.text()).kernels]
    assert got == [
        (GEMM, "kernel", False, "no sign of communication", 3, 180_000),
        ("ncclDevKernel_AllGather_RING_LL(x)", "kernel", True, "name: NCCL", 3, 60_000),
        ("Memset (Device)", "fill", False, "no sign of communication", 3, 15_000),
    ]


@pytest.mark.parametrize("prefix", ["gloo", "hccl"])
def test_an_annotation_that_lasts_as_long_as_the_transfer_says_nothing_of_what_is_launched_meanwhile(
    read: Read, prefix: str
) -> None:
    line = Timeline()
    line.annotation(f"{prefix}:all_to_all", 0, 500)
    for k in range(3):
        line.device(100 * k + 60, 40, STRANGE, launched=100 * k + 10)
    assert len(read(line.text()).calls) == 0


def test_an_annotation_around_many_kernels_is_no_call_of_a_collective(read: Read) -> None:
    line = Timeline()
    line.annotation("nccl:all_to_all", 0, 900)
    for k in range(8):
        line.device(100 * k + 60, 40, STRANGE, launched=100 * k + 10)
    assert len(read(line.text()).calls) == 0
    line = Timeline()
    line.annotation("nccl:all_to_all", 0, 50)
    line.device(60, 40, STRANGE, launched=10)
    assert ops(read(line.text())) == ["all_to_all"]
