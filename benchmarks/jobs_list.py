"""The jobs of `jobs_on_gpus.py` in the order of their importance, their networks, and how long each run takes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).resolve().with_name("train_job.py")
NETWORKS = ("nvlink", "shm", "emulated-uncapped", "emulated-20g", "emulated-10g")
TRACED = ("nvlink", "emulated-20g")
"""Networks over which iterations are profiled, and from which the others are predicted."""
CPU_NETWORKS = ("emulated-1g", "emulated-300m", "emulated-60m")
CPU_TRACED = ("emulated-1g", "emulated-300m")
PROFILED = 4
MEASURED_S = 6.0
"""Time that the measured iterations of a run take, between the fewest and the most."""
FEWEST, MOST = 5, 20
START_S = 14.0
TRACE_S = 6.0
"""Time of a run before its first iteration, and in which it writes its traces."""


@dataclass(frozen=True)
class Job:
    """A training command, or a study's model of another engine.

    Attributes:
        kind: its class, by which errors are summed up.
        arguments: of `train_job.py`; of Python if they begin with `-m`; None for a model of `engine`.
        iteration_s: expected seconds of an iteration over each of `NETWORKS`.
        more_start_s: seconds that its start takes beyond that of a plain job.
        needs: a package without which it is skipped.
        engine: a workload of a study, instead of arguments.
        own: how the job tells its times: `times` (the file of OWN_TIMES), or the pattern of its lines of output.
    """

    name: str
    kind: str
    arguments: tuple[str, ...] | None
    iteration_s: tuple[float, float, float, float, float]
    more_start_s: float = 0.0
    needs: str | None = None
    engine: dict[str, Any] | None = field(default=None, hash=False)
    own: str = "times"

    def command(self, *, device: str, tiny: bool) -> list[str]:
        assert self.arguments is not None
        if self.arguments[0] == "-m":
            return [sys.executable, *self.arguments]
        small = ["--tiny", "--micro-batch", "4", "--sequence", "32"] if tiny else []
        return [sys.executable, str(TRAIN), *self.arguments, "--device", device, *small]

    def why_not(self, device: str) -> str | None:
        """Returns why the job can't run here; None if it can."""
        if device == "cpu" and (self.engine is not None or self.own != "times"):
            return "needs GPUs"
        if self.needs is not None and importlib.util.find_spec(self.needs) is None:
            return f"the package {self.needs} is not installed"
        return None


LINE_MS = r"iteration \d+: ([0-9.]+) ms"
"""Lines of `wirecost.megatron` and of `wirecost.peers.hugging_face`."""
LINE_TPS = r"tps: ([0-9,]+)"
"""Lines of torchtitan: tokens in a second on one GPU."""
TORCHTITAN_TOKENS = 4 * 1024
MEGATRON: dict[str, Any] = {
    "name": "megatron", "engine": "megatron", "workload": "gpt-2-medium", "plan": "ddp-bf16", "micro_batch": 8,
}  # fmt: skip

JOBS = (
    Job("hf-ddp", "ddp", ("--model", "hf-gpt2"), (0.24, 0.25, 0.34, 0.70, 1.29), 5.0, "transformers"),
    Job(
        "hf-fsdp2", "fsdp2", ("--model", "hf-gpt2", "--parallel", "fsdp2"), (0.26, 0.27, 0.39, 0.87, 1.71),
        5.0, "transformers",
    ),
    Job(
        "llama-fsdp2", "fsdp2",
        ("--model", "hf-llama", "--parallel", "fsdp2-bf16", "--sequence", "2048", "--micro-batch", "4"),
        (0.20, 0.28, 0.50, 1.35, 2.65), 12.0, "transformers",
    ),
    Job("tp2", "tp", ("--parallel", "tp", "--micro-batch", "8"), (0.10, 0.15, 0.40, 0.70, 1.35)),
    Job("pp2", "pp", ("--parallel", "pp"), (0.10, 0.10, 0.12, 0.15, 0.20)),
    Job("graphs", "graphs", ("--graphs",), (0.12, 0.20, 0.35, 0.70, 1.40), 4.0),
    Job("compiled", "compiled", ("--compile",), (0.10, 0.18, 0.33, 0.68, 1.35), 30.0),
    Job("slow-rank", "slow rank", ("--slow", "1.3"), (0.15, 0.22, 0.38, 0.72, 1.40)),
    Job(
        "host-bound", "host-bound", ("--model", "small", "--micro-batch", "1", "--sequence", "256"),
        (0.03, 0.03, 0.04, 0.06, 0.10),
    ),
    Job(
        "megatron", "megatron", None, (0.15, 0.18, 0.25, 0.40, 0.70), 15.0, "megatron",
        MEGATRON, LINE_MS,
    ),
    Job(
        "torchtitan", "torchtitan",
        ("-m", "wirecost.peers.torchtitan", "--workload", "llama-375m", "--micro-batch", "4"),
        (0.10, 0.15, 0.30, 0.60, 1.20), 15.0, "torchtitan", None, LINE_TPS,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A job over a network.

    Attributes:
        profiled: iterations under the profiler.
    """

    job: Job
    network: str
    profiled: int
    tiny: bool = False

    @property
    def iteration_s(self) -> float:
        if self.tiny:
            return 0.1 if self.network != "emulated-60m" else 0.3
        return self.job.iteration_s[NETWORKS.index(self.network)]

    @property
    def steps(self) -> int:
        """Number of measured iterations."""
        if self.tiny:
            return 6
        return min(MOST, max(FEWEST, round(MEASURED_S / self.iteration_s)))

    @property
    def warmup(self) -> int:
        return 5 if self.iteration_s < 0.5 else 3

    @property
    def seconds(self) -> float:
        """Expected seconds of the whole run."""
        iterations = self.warmup + self.steps + (1 + self.profiled if self.profiled else 0)
        start_s = START_S + self.job.more_start_s
        return start_s + 1.1 * iterations * self.iteration_s + (TRACE_S if self.profiled else 0.0)


def runs(names: list[str], phase: str, networks: list[str], traced: list[str], *, tiny: bool) -> list[Run]:
    """Returns the runs of a phase in their order: `traces` those over traced networks, `measure` the others."""
    mine = [n for n in networks if (n in traced) == (phase == "traces")]
    profiled = PROFILED if phase == "traces" else 0
    return [Run(job, network, profiled, tiny) for job in JOBS if job.name in names for network in mine]
