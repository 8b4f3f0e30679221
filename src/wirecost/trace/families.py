"""Names of communication: library kernels, annotations and operators, and names that only look like communication.

The patterns were matched against the projects' kernel names: NCCL (src/device), RCCL, MSCCL and MSCCL++, oneCCL
(src/coll, src/kernels), HCCL, NVSHMEM, DeepEP (csrc/kernels), pplx-kernels, MORI, custom all-reduce of vLLM and
SGLang, FlashInfer (include/flashinfer/comm), TensorRT-LLM, AITER (csrc/include/custom_all_reduce.cuh), ROCm quick
reduce, PyTorch symmetric memory (CUDASymmetricMemory.cu), Transformer Engine user buffers (comm_gemm_overlap).
Patterns are matched without regard to case, against a kernel's function name (see `names.function_name`).
"""

from __future__ import annotations

# A collective's name as a word of a kernel's name, in any spelling: all_reduce, AllReduce, allreduce, a2a.
_COLLECTIVE = (
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|(?<![a-z])a2a|(?<=[a-z_])a2a(?=_|[A-Z])"
)

# Family of communication kernels -> pattern of the function's name.
FAMILIES: dict[str, str] = {
    "NCCL": r"(?<![a-z0-9])nccl(dev|sym)?\w*kernel|(?<![a-z0-9])nccl\w*(ring|tree|nvls|ctran)",
    "RCCL": r"(?<![a-z0-9])rccl\w*",
    "MSCCL": r"(?<![a-z0-9])msccl\w*",
    "MCCL": r"(?<![a-z0-9])(mccl|cncl|ixccl|vccl)\w*kernel",
    "HCCL": r"(?<![a-z0-9])(hcom_?|hccl)\w*",
    "oneCCL": r"(?<![a-z0-9])oneccl|(?<![a-z0-9])ccl_?kernel|(?<![a-z0-9])ccl::|oneapi::ccl"
    r"|(all_?reduce|all_?gatherv?|reduce_?scatter|all_?to_?allv?)_?(small|medium|large)\w*kernel"
    r"|\bnocopykernel_|\bkernel_ranksync",
    "shared memory": r"(?<![a-z])(nv|roc|i)shmem",
    "DeepEP": r"(?<![a-z0-9])ep::(internode|intranode|internode_ll|legacy|elastic)::\w*"
    r"(notify|dispatch|combine|barrier|clean_low_latency)|(?<![a-z0-9])hybrid_ep::\w*(dispatch|combine|sync|barrier)",
    "expert-parallel library": r"(?<![a-z0-9])(pplx|mori|uccl|nixl_ep|deep_ep|deepep)::\w*.*"
    r"(dispatch|combine|barrier|notify|send|recv|put|all)|(?<![a-z])ep(dispatch|combine)\w*kernel"
    r"|(?<![a-z])a2a_(dispatch|combine)_(send|recv)",
    "custom all-reduce": r"\bcross_device_reduce|_cross_device_store|(?<![a-z0-9])(ag|ar|rs)(_ll)?_gfx\d+"
    r"|(?<![a-z0-9])quickreduce::|rmsnormlamport|(oneshot|twoshot|one_shot|two_shot)\w*(all_?reduce|lamport)"
    r"|(?<![a-z])ipc_\w*(rsag|push|pull)\w*kernel|push_oneshot_param",
    "symmetric memory": r"(?<![a-z0-9])(put_signal|wait_signal|barrier)_kernel$"
    r"|(?<![a-z])multimem_(all_reduce|all_gather|reduce_scatter|one_shot)\w*|exchangesplitandoffset",
    "user buffers": r"userbuffers_",
    "collective by its name": _COLLECTIVE,
}  # fmt: skip

# Collectives' names inside kernels that only prepare, and block-wide reductions that the same words name.
NOT_A_COLLECTIVE = (
    r"get_dispatch_layout|(query|update|clean)_mask_buffer"
    r"|(warp|block|cta|cluster|lane|thread|quad|wave)s?_?all_?reduce"
    r"|(all_?to_?all|all2all|a2a|all_?gather|all_?reduce|reduce_?scatter)\w*"
    r"(metadata|prepare|sanitize|indices|indice|initiali[sz]e|layout|copy_in|copy_out|expertids)"
    r"|lamport_initiali[sz]e"
)
# Fused kernels that compute and communicate count as compute: they are mostly a matrix product or attention.
FUSED_COMPUTE = r"gemm|matmul|attention|flash_attn|(?<![a-z])mha|(?<![a-z])mla_"
# Inductor names a fused kernel after all it was fused from, collectives included; it is compute all the same.
INDUCTOR = r"^triton_"
# Local kernels of PyTorch and of libraries under it, wherever they run: fills, copies, products.
LOCAL = (
    r"(?<![a-z0-9])at::|(?<![a-z0-9])(at_cuda_detail|cub|thrust|rocprim|hipcub)::|elementwise|memset|(?<![a-z])fill"
    r"|gemm|cutlass|cublas|^triton_|catarraybatchedcopy|ck::|tensile|Cijk_|multi_tensor_apply|nvjet"
)

# Annotations of a communication: the backend before a colon (torch/csrc/distributed/c10d).
ANNOTATION = (
    r"^(nccl|ncclx|rccl|gloo|mpi|ucc|xccl|hccl|cncl|mccl|ixccl|vccl|eccl|tccl|flagcx|rccl|oneccl|lccl|torchcomms?)"
    r"(:(?!:)|::(?=all|reduce|broadcast|send|recv|barrier|gather|scatter|coalesced))"
    # NCCL's own NVTX annotations (src/collectives.cc).
    r"|^nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|AllToAll|AlltoAll|Gather|Scatter)$"
)
# Backends whose annotations last until the communication ends, so that other work is launched inside them.
LASTING = r"^(gloo|mpi|ucc|hccl|eccl|lccl):"
# Annotations of a backend that works on the host.
HOST_ANNOTATIONS = ("gloo:", "mpi:", "ucc:")

# Operators (`namespace::name`) that communicate, and namespaces whose operators only wait, copy or compute.
OPERATOR = (
    r"^(c10d|_?c10d_functional\w*|symm_mem|torch_ccl|oneccl|deep_ep|quickreduce|\w*nccl\w*)::|^record_param_comms$"
    rf"|^(?!aten::|fsdp::|prims::|autograd::)\w+::\w*({_COLLECTIVE}|cross_device_reduce|qr_all_reduce)\w*$"
)
NOT_AN_OPERATOR = r"::_?(wait_tensor|wait|monitored_barrier|get_\w+|set_\w+|empty\w*|has_\w+)$"

# Copies between GPUs, as CUPTI, roctracer and other tracers name them.
PEER_COPY = r"\bPtoP\b|\bP2P\b|peer.to.peer|\bmemcpyPeer|DtoD \(peer\)"

# Names that look like communication without other evidence.
LOOKS_LIKE = (
    rf"{_COLLECTIVE}|(?<![a-z])(n|r|h|m|x|one)ccl|shmem|cross_device|cross_rank|inter_?gpu|multi_?gpu|peer_?to_?peer"
    r"|(?<![a-z0-9])p2p|symm_?mem|userbuffer|mnnvl|(?<![a-z])nvls|multimem|lamport|send_?recv|(remote|peer)_?"
    r"(put|get|push|pull|read|write|copy|load|store)|(expert|ep|moe)_?(dispatch|combine)|(?<![a-z])ring_?(send|recv)"
)
