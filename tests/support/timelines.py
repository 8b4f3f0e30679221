"""Small traces from first principles: device work with what launched it, in kineto's form. Times are microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BASE_NS = 1_700_000_000_000_000_000
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMPUTE_STREAM, COMM_STREAM = 7, 20
HOST = 999


class Timeline:
    """One rank's trace in the making."""

    def __init__(self, rank: int | None = None, world: int = 1, **top: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.top: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **top}
        if rank is not None:
            self.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
        self._correlation = 0

    def add(
        self, cat: str | None, name: str, pid: Any, tid: Any, start: float, length: float, **args: Any
    ) -> None:
        event: dict[str, Any] = {"ph": "X"} | ({"cat": cat} if cat is not None else {})
        self.events.append(
            event | {"name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}
        )

    def device(
        self, start: float, length: float, name: str = GEMM, *, stream: int = COMPUTE_STREAM, cat: str = "kernel",
        launched: float | None = None, thread: int = HOST, device: int = 0, external: int | None = None, **args: Any,
    ) -> None:  # fmt: skip
        """Adds device work, and the call that launched it if `launched` is given."""
        self._correlation += 1
        args |= {} if external is None else {"External id": external}
        self.add(cat, name, device, stream, start, length, device=device, stream=stream,
                 correlation=self._correlation, **args)  # fmt: skip
        if launched is not None:
            around = {} if external is None else {"External id": external}
            self.host("cudaLaunchKernel", launched, 3, thread=thread, correlation=self._correlation, **around)

    def host(self, name: str, start: float, length: float, *, thread: int = HOST, **args: Any) -> None:
        """Adds a call of the CUDA runtime."""
        self.add("cuda_runtime", name, HOST, thread, start, length, **args)

    def operator(
        self,
        name: str,
        start: float,
        length: float,
        *,
        thread: int = HOST,
        external: int | None = None,
        **args: Any,
    ) -> None:
        args |= {} if external is None else {"External id": external}
        self.add("cpu_op", name, HOST, thread, start, length, **args)

    def annotation(self, name: str, start: float, length: float, *, thread: int = HOST, **args: Any) -> None:
        self.add("user_annotation", name, HOST, thread, start, length, **args)

    def gpu_annotation(self, name: str, start: float, length: float, *, stream: int = COMPUTE_STREAM) -> None:
        self.add("gpu_user_annotation", name, 0, stream, start, length)

    def step(self, number: int, start: float, length: float) -> None:
        self.annotation(f"ProfilerStep#{number}", start, length)

    def text(self) -> bytes:
        return json.dumps({**self.top, "traceEvents": self.events}).encode()

    def write(self, folder: Path, name: str | None = None) -> Path:
        rank = self.top.get("distributedInfo", {}).get("rank", 0)
        path = folder / (name or f"rank{rank}.json")
        path.write_bytes(self.text())
        return path
