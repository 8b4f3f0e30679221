"""What every framework's writer takes: a plan with its setup."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.costmodel.setup import Setup
from wirecost.planner.choices import Choice


@dataclass(frozen=True)
class EmittedJob:
    """A plan to write.

    Attributes:
        choice: the plan.
        setup: its setup.
    """

    choice: Choice
    setup: Setup

    @property
    def nodes(self) -> int:
        """Number of nodes of the job."""
        return max(1, self.setup.gpus // self.setup.cluster.gpus_per_node)

    @property
    def gpus_of_node(self) -> int:
        """Number of processes on each node."""
        return min(self.setup.gpus, self.setup.cluster.gpus_per_node)

    @property
    def shards(self) -> int:
        """Number of data-parallel ranks that share one copy of what ZeRO shards."""
        c = self.choice
        if not c.node_sharding:
            return c.dp
        return max(1, min(c.dp, self.setup.cluster.gpus_per_node // c.tp // c.cp))


def torchrun_words(job: EmittedJob) -> list[str]:
    """Returns the words of torchrun's command line before the script."""
    words = ["torchrun", f"--nnodes={job.nodes}", f"--nproc-per-node={job.gpus_of_node}"]
    if job.nodes > 1:
        words += ["--rdzv-backend=c10d", "--rdzv-endpoint=$MASTER_ADDR:29500"]
    return words


def command(words: list[str], arguments: list[tuple[str, ...]]) -> str:
    """Returns a command over several lines, one argument with its value on each."""
    lines = [" ".join(words), *(" ".join(argument) for argument in arguments)]
    return " \\\n    ".join(lines) + "\n"
