"""What counts as communication, and which operation a name stands for."""

from __future__ import annotations

import pytest

from wirecost.trace.categories import COPY
from wirecost.trace.classify import Classifier
from wirecost.trace.operations import bus_factor, operation, total_bytes
from wirecost.trace.source import TraceError

COMMUNICATION = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "send_recv",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "nccl:all_reduce": "all_reduce",
    "nccl:_all_gather_base": "all_gather",
    "gloo:all_reduce": "all_reduce",
    "void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*, vllm::RankSignals, int)": "all_reduce",
    "void deep_ep::internode::dispatch<false, 4, true, 8>(int4*, float*)": "dispatch",
    "void deep_ep::internode::combine<4, true, __nv_bfloat16>(int4*)": "combine",
    "deep_ep::intranode::notify_dispatch<8>(int const*)": "dispatch",
    "nvshmemi_transfer_put": "unknown",
    "void mscclpp::allreduce::kernel<int>(int*)": "all_reduce",
    "mscclKernel_Sum_half_Simple": "unknown",
    "oneccl_allreduce_small": "all_reduce",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float>(float**)": "all_reduce",
    "multimem_all_reduce_kernel": "all_reduce",
    "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop": "unknown",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce",
    "ncclSymDevKernel_AllGather_LL(ncclDevKernelArgs)": "all_gather",
    "nccldevkernel_allreduce_sum_f32_ring_ll": "all_reduce",
    "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE": "all_reduce",
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE": "reduce_scatter",
    "_ZN4vllm26cross_device_reduce_2stageIfLi4EEEvPNS_8RankDataE": "all_reduce",
    "void aiter::allreduce_fusion_kernel_2stage<__hip_bfloat16, 8>(aiter::RankData*)": "all_reduce",
    "void aiter::ar_ll_gfx1250<float, 8>(int)": "all_reduce",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<x> >(int)": "all_reduce",
    "void deep_ep::internode::cached_notify<false>(int, int, int)": "unknown",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*)": "combine",
    "void mori::moe::EpDispatchIntraNodeKernel<float>(mori::moe::EpDispatchCombineArgs<float>)": "dispatch",
    "void pplx::a2a_kernels::a2a_combine_recv_kernel<8>(int)": "combine",
    "void (anonymous namespace)::a2a_dispatch_send_kernel<8>(int)": "dispatch",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)8, __nv_bfloat16, false>(x)": "all_reduce",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__nv_bfloat16>(x)": "all_reduce",
    "void tensorrt_llm::kernels::moeAlltoAllKernel<8>(x)": "all_to_all",
    "void moe_comm::moeA2ADispatchKernel<8>(x)": "dispatch",
    "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 8u, true>(x)": "all_reduce",
    "kuserbuffers_pushrecv(int, int, int*, int*, int)": "recv",
    "(anonymous namespace)::barrier_kernel(unsigned int**, int, int, int, unsigned long)": "barrier",
    "(anonymous namespace)::put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)": "unknown",
    "oneccl_reduce_base<float, 2, 16, 1, 1, 2>": "reduce",
    "Allgatherv_small_kernel_esimd<float>": "all_gather",
    "ReduceScatterLargeNoCopyKernel<half>": "reduce_scatter",
    "alltoallv_kernel_4_float_sum": "all_to_all",
    "hcom_allReduce__304_0_1": "all_reduce",
    "hcom_batchSendRecv__304_1_1": "send_recv",
    "ncclKernelAllGatherCtranDirect(CtranAlgoDeviceState*)": "all_gather",
}
COMPUTE = [
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "triton_poi_fused_add_all_gather_into_tensor_reduce_scatter_0",
    "triton_red_fused_ncclKernel_look_alike",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(float)",
    "void cub::DeviceReduceKernel<int>(int)",
    "void at::native::scatter_gather_elementwise_kernel<128>(int)",
    "void at::native::(anonymous namespace)::broadcast_add(float)",
    "splitKreduce_kernel",
    "dispatch_tokens_to_experts",
    "gemm(ncclDevKernelArgsStorage<4096ul>)",
    "void cutlass::Kernel<ccl::Tile, nvshmem_team>(int)",
    "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*)",
    "void deep_ep::internode_ll::query_mask_buffer(int*)",
    "void dpsk::ep::cuda::get_dispatch_layout<8>(long const*)",
    "void groupnorm_kernel_dispatch_up<__hip_bfloat16>(int)",
    "computeSendRecvIndicesKernel(int*)",
    "void moe_comm::moeA2ASanitizeExpertIdsKernel(int*)",
    "void lamport_initialize_kernel<float>(float*)",
    "softmax_block_all_reduce_kernel(float*)",
    "void blockAllReduceSum<float>(float*)",
    "ag_gemm_matmul_all_gather_kernel",
    "void moe_scatter_reduce<8>(int)",
    "_Z9my_kernelPf",
    "_ZN",
    "_Z99999short",
    "",
]


@pytest.mark.parametrize(("name", "op"), COMMUNICATION.items())
def test_communication_and_its_operation(name: str, op: str) -> None:
    assert Classifier().communicates(name)
    assert operation(name) == op


@pytest.mark.parametrize("name", COMPUTE)
def test_everything_else_is_compute(name: str) -> None:
    assert not Classifier().communicates(name)


def test_user_patterns_add_and_reach_copies() -> None:
    plain, users = Classifier(), Classifier(["^my_ring", "PtoP"])
    assert not plain.communicates("my_ring_exchange")
    assert users.communicates("my_ring_exchange")
    assert users.communicates("Memcpy PtoP (Device -> Device)", COPY)
    assert not plain.communicates("Memcpy PtoP (Device -> Device)", COPY)


def test_a_broken_pattern_is_refused_with_its_text() -> None:
    with pytest.raises(TraceError, match=r"\(oops.*regular expression"):
        Classifier(["(oops"])


@pytest.mark.parametrize(
    ("argument", "op"),
    [
        ("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"), ("allreduce_coalesced", "all_reduce"), ("reduce", "reduce"),
        ("send", "send"), ("recv", "recv"), ("barrier", "barrier"), ("gather", "gather"), ("scatter", "scatter"),
        ("init", "unknown"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("allgather_into_tensor_coalesced", "all_gather"),
    ],
)  # fmt: skip
def test_operations_as_arguments_write_them(argument: str, op: str) -> None:
    assert operation(argument) == op


def test_bus_factors_use_the_groups_size() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_gather", 4) == 0.75
    assert bus_factor("reduce_scatter", 2) == 0.5
    assert bus_factor("broadcast", None) == 1
    assert bus_factor("all_reduce", None) is None
    assert bus_factor("unknown", 8) is None


def test_sizes_are_totals_and_unknown_where_something_is_missing() -> None:
    assert total_bytes("all_reduce", 100, 100, "BFloat16") == 200
    assert total_bytes("all_gather", 100, 800, "Float") == 3200
    assert total_bytes("reduce_scatter", 800, 100, "Float") == 3200
    assert total_bytes("all_reduce", None, 100, "Float") is None
    assert total_bytes("all_reduce", 100, 100, "Quux") is None
    assert total_bytes("unknown", 100, 100, "Float") is None
    assert total_bytes("send_recv", 0, 0, "Float") is None  # a coalesced call that doesn't tell its parts
    assert total_bytes("all_to_all", 0, 100, "Float") == 0  # a rank with nothing to send
    assert total_bytes("all_gather", 100, 800, "Float8_e8m0fnu") == 800
