"""What a device event is: communication, a copy, or compute; and which collective a name stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from wirecost.trace.source import TraceError

# Kineto's categories of device work (libkineto/src/ActivityType / output_json.cpp), those of PyTorch 1.8, and
# Meta's MTIA. `cuda_sync` and `gpu_user_annotation` stand on device rows and are not device work.
KERNEL, COPY, FILL = 0, 1, 2
DEVICE_CATEGORIES = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "gpu_memcpy": COPY,
    "Memcpy": COPY,
    "gpu_memset": FILL,
    "Memset": FILL,
}
GPU_ANNOTATION, CPU_ANNOTATION = "gpu_user_annotation", "user_annotation"

# Host work and decoration: known, and not needed.
OTHER_CATEGORIES = frozenset(
    [
        "cpu_op",
        "cpu_instant_event",
        "python_function",
        "cuda_runtime",
        "cuda_driver",
        "hip_runtime",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "glow_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
        "overhead",
        "cuda_sync",
        "cuda_event",
        "cuda_profiler_range",
        "mtia_counters",
        "mtia_insight",
        "collective_comm",
        "external_correlation",
        "ac2g",
        "fwdbwd",
        "async_cpu_to_gpu",
        "async_gpu",
        "async_cpu",
        "forward_backward",
        "Operator",
        "Runtime",
        "hpu_op",
        "gpu_pm_counter",
        "itt",
        "Overhead",
        "Cpu_Op",
        "User_Annotation",
        "mtia_workload",
    ]
)

# Families of communication kernels and the annotations that stand for them. Matched from the projects' kernel
# names: NCCL (src/device), RCCL, MSCCL and MSCCL++, oneCCL, NVSHMEM, DeepEP (csrc/kernels), vLLM and SGLang custom
# all-reduce, TensorRT-LLM and FlashInfer, PyTorch symmetric memory, Transformer Engine user buffers.
COMMUNICATION = (
    r"^(nccl|rccl|gloo|mpi|ucc|xccl|hccl|cncl):",
    r"\bnccl(Kernel|[A-Z]\w*[kK]ernel)",
    r"^(rccl|msccl)\w*[Kk]ernel",
    r"\bmscclpp\b|mscclpp::",
    r"\boneccl|\bccl_?kernel|\bccl::|oneapi::ccl",
    r"(^|[^a-z])(nv|roc|i)shmem",
    r"(?<![a-zA-Z0-9])ep::(internode|intranode|internode_ll)::\w*(dispatch|combine)",
    r"\bcross_device_reduce",
    r"\b(one_shot|two_shot|multimem_one_shot|multimem)_(all_reduce|reduce_scatter|all_gather)\w*kernel",
    r"\b(oneShot|twoShot|lamport|customAll|allreduce_fusion)\w*(AllReduce|allreduce|Kernel|kernel)",
    r"\buserbuffers_",
)
# Inductor names a fused kernel after all it was fused from, collectives included; it is compute all the same.
_FUSED = re.compile(r"^triton_")

# Operation by name, first match wins. Names without underscores, in lower case.
_OPERATIONS = (
    ("allreduce|crossdevicereduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall|all2all", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv|coalesced|batchisendirecv|pointtopoint", "send_recv"),
    ("barrier", "barrier"),
    ("dispatch", "dispatch"),
    ("combine", "combine"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    (r"send", "send"),
    (r"recv|receive", "recv"),
)
_OPERATION = [(re.compile(pattern), op) for pattern, op in _OPERATIONS]
UNKNOWN = "unknown"
_TEMPLATE = re.compile(r"<[^<>]*>")
_MAX_NESTING = 20

# c10::ScalarType names (c10/core/ScalarType.h) as ParamCommsUtils writes them, in bytes.
DTYPE_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "BFloat16": 2, "Float": 4,
    "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e5m2": 1, "Float8_e4m3fn": 1,
    "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1, "Float8_e8m0fnu": 1, "Float4_e2m1fn_x2": 1,
    "UInt16": 2, "UInt32": 4, "UInt64": 8, "QInt8": 1, "QUInt8": 1,
    "QInt32": 4,
}  # fmt: skip


class Classifier:
    """Tells communication by name; `patterns` are the user's regular expressions, on top of the known ones.

    Raises:
        TraceError: for a pattern that is no regular expression.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._known = re.compile("|".join(f"(?:{p})" for p in COMMUNICATION))
        self._users: list[re.Pattern[str]] = []
        for pattern in patterns:
            try:
                self._users.append(re.compile(pattern))
            except re.error as error:
                raise TraceError(f"communication pattern '{pattern}' is no regular expression: {error}") from error

    def communicates(self, name: str, kind: int = KERNEL) -> bool:
        """Whether a device event is communication. Copies and fills are, only where the user says so."""
        if any(p.search(name) for p in self._users):
            return True
        return kind == KERNEL and not _FUSED.match(name) and self._known.search(_function(name)) is not None


def _function(name: str) -> str:
    """A kernel's own name, without template arguments and parameters: those name other functions' types."""
    head = name.replace("(anonymous namespace)", "")
    for _ in range(_MAX_NESTING):
        head, changed = _TEMPLATE.subn("", head)
        if not changed:
            break
    return head.split("(", 1)[0]


def operation(name: str) -> str:
    """The collective that a kernel's, annotation's or argument's name stands for; `unknown` where it doesn't say.

    One name for each operation whatever wrote it: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`,
    `broadcast`, `reduce`, `send_recv`, `send`, `recv`, `gather`, `scatter`, `barrier`, `dispatch`, `combine`.
    """
    function = _function(name)
    head = function.lower().replace("_", "")
    for prefix in ("nccldevkernel", "ncclkernel"):
        if head.startswith(prefix):
            # ncclDevKernel_AllReduce_Sum_f32_RING_LL: the operation comes first.
            head = function[function.lower().index("kernel") + 6 :].lstrip("_").split("_", 1)[0].lower()
            break
    for pattern, op in _OPERATION:
        if pattern.search(head):
            return op
    return UNKNOWN


def bus_factor(op: str, group_size: int | None) -> float | None:
    """busbw / algbw of an operation over a group (nccl-tests, doc/PERFORMANCE.md); None where it isn't defined."""
    if op in ("broadcast", "reduce", "send_recv", "send", "recv"):
        return 1.0
    if group_size is None or group_size < 1:
        return None
    if op == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (group_size - 1) / group_size
    return None


def total_bytes(op: str, elements_in: int | None, elements_out: int | None, dtype: str | None) -> int | None:
    """The total size S of a collective from kineto's per-rank element counts; None where it isn't known.

    S is the output of an all-gather and of a gather, and the input of everything else.
    """
    width = DTYPE_BYTES.get(dtype or "")
    elements = elements_out if op in ("all_gather", "gather", "recv") else elements_in
    if width is None or elements is None or op == UNKNOWN:
        return None
    if not elements_in and not elements_out and op != "barrier":
        return None  # no kernel is launched to move nothing: a coalesced call that doesn't tell its parts
    return elements * width
