"""A GPU with streams, played from first principles, and the trace that PyTorch's profiler would write of it.

A kernel starts when it was launched, when the one before it on its stream has ended and when what its stream was made
to wait for has. With one connection (CUDA_DEVICE_MAX_CONNECTIONS=1) it also starts no earlier than what was launched
before it on any stream. Times are microseconds.
"""

from __future__ import annotations

from pathlib import Path

from support.timelines import ALL_REDUCE, COMM_STREAM, COMPUTE_STREAM, GEMM, HOST, Timeline
from wirecost.trace import TraceSet, read

LATENCY = 5.0  # from a launch call's start to the kernel's
CALL = 3.0  # what a launch call takes


class Gpu:
    """One rank. Its host does one thing after the other; `now` is the host's time."""

    def __init__(self, rank: int = 0, world: int = 2, *, one_connection: bool = False) -> None:
        self.line = Timeline(rank=rank, world=world)
        self.now = 0.0
        self.thread = HOST
        self._one_connection = one_connection
        self._dispatched = 0.0
        self._ends: dict[int, float] = {}
        self._after: dict[int, float] = {}
        self._step = (0, 0.0)

    def launch(self, name: str, length: float, stream: int, **args: object) -> float:
        """Launches a kernel; gives when it ends."""
        start = max(self.now + LATENCY, self._ends.get(stream, 0), self._after.get(stream, 0))
        if self._one_connection:
            start = self._dispatched = max(start, self._dispatched)
        self.line.device(start, length, name, stream=stream, launched=self.now, thread=self.thread, **args)  # pyright: ignore[reportArgumentType]
        self._ends[stream] = start + length
        self.now += CALL
        return start + length

    def compute(self, length: float, count: int = 1, *, launches: float | None = None) -> None:
        """Runs compute kernels that take `length` together; each launch takes `launches`."""
        for _ in range(count):
            self.launch(GEMM, length / count, COMPUTE_STREAM)
            if launches is not None:
                self.now += launches - CALL

    def collective(self, length: float, *, stream: int = COMM_STREAM, name: str = ALL_REDUCE) -> float:
        """Runs a collective on its own stream after the compute launched so far. Returns its end."""
        begun = self.now
        if stream != COMPUTE_STREAM:
            self.line.host("cudaEventRecord", self.now + 1, 1, thread=self.thread)
            self.line.host("cudaStreamWaitEvent", self.now + 2, 1, thread=self.thread)
            self._after[stream] = max(self._after.get(stream, 0), self._ends.get(COMPUTE_STREAM, 0))
        self.now += 4
        end = self.launch(name, length, stream)
        arguments = {
            "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
            "Process Group Name": "0", "Group size": 2,
        }  # fmt: skip
        self.line.operator("record_param_comms", begun, self.now - begun, thread=self.thread, **arguments)
        return end

    def join(self, end: float) -> None:
        """Makes the compute stream wait for a collective, as `work.wait()` does."""
        self.line.host("cudaStreamWaitEvent", self.now, 1, thread=self.thread)
        self._after[COMPUTE_STREAM] = max(self._after.get(COMPUTE_STREAM, 0), end)
        self.now += 2

    def synchronize(self) -> None:
        """Makes the host wait for the device."""
        until = max([*self._ends.values(), self.now])
        self.line.host("cudaStreamSynchronize", self.now, until + 2 - self.now, thread=self.thread)
        self.now = until + 4

    def sleep(self, length: float) -> None:
        """Makes the host do other work."""
        self.now += length

    def begin(self) -> None:
        self._step = (self._step[0] + 1, self.now)

    def finish(self) -> None:
        """Ends a step with an optimizer's kernel."""
        self.line.annotation("Optimizer.step#AdamW.step", self.now, 5)
        self.now += 1
        self.launch("void at::native::multi_tensor_apply_kernel<Adam>(int)", 30, COMPUTE_STREAM)
        self.now += 2
        number, start = self._step
        self.line.step(number, start, self.now - start)

    def read(self, folder: Path) -> TraceSet:
        self.line.write(folder)
        return read(folder)
