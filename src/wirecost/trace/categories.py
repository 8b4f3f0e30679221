"""The event categories of profilers: which are device work, which annotate it, which launch it."""

from __future__ import annotations

# Kineto's categories of device work (libkineto/include/ActivityType.h), those of PyTorch 1.8, and Meta's MTIA.
# `cuda_sync` and `gpu_user_annotation` are in rows of the device, but are not device work.
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

# Operators of the host; old profilers write their steps among these.
OPERATORS = frozenset(("cpu_op", "Operator"))

# Host calls that may launch device work; their `correlation` is the device event's.
RUNTIME_CATEGORIES = frozenset(
    [
        "cuda_runtime",
        "cuda_driver",
        "hip_runtime",
        "hip_driver",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "glow_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
        "Runtime",
    ]
)

# Host work and decoration: known, and not needed for the answer.
OTHER_CATEGORIES = frozenset(
    [
        *OPERATORS,
        *RUNTIME_CATEGORIES,
        "cpu_instant_event",
        "python_function",
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
        "hpu_op",
        "gpu_pm_counter",
        "itt",
        "Overhead",
        "Cpu_Op",
        "User_Annotation",
        "mtia_workload",
        "xpu_sync",
        "xpu_scope_profiler",
        "hardware_counters",
    ]
)
