"""The request of a benchmark: collectives, sizes, groups, backend and network, checked before the start."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from wirecost.collectives.dtypes import DTYPES, DType, dtype_named
from wirecost.collectives.operations import BARRIER, COLLECTIVES
from wirecost.errors import SpecError
from wirecost.spec.base import Spec
from wirecost.spec.experiment import MAX_EMULATED_HOSTS
from wirecost.spec.network import Network

MAX_SIZES = 1000


class Backend(StrEnum):
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"


class Mode(StrEnum):
    OUT_OF_PLACE = "out_of_place"
    IN_PLACE = "in_place"


class ReduceOp(StrEnum):
    SUM = "sum"
    MAX = "max"
    MIN = "min"


class BenchRequest(Spec):
    """The measurements of a benchmark.

    `groups` lists the ranks of each process group; all groups run at once. Rank r is on host r // ranks_per_host.
    `iterations` is the number of messages in each of five rounds; None uses as many as `budget_s` allows for one
    size, at least one. `graph` puts a round's messages into one CUDA graph. `launcher` names what started the
    ranks (torchrun, Slurm, MPI); None starts them on this machine.
    """

    collectives: tuple[str, ...] = ("all_reduce",)
    sizes_bytes: tuple[PositiveInt, ...]
    backend: Backend
    network: Network
    hosts: PositiveInt = 1
    ranks_per_host: PositiveInt = 1
    groups: tuple[tuple[NonNegativeInt, ...], ...]
    dtype: str = "float"
    redop: ReduceOp = ReduceOp.SUM
    modes: tuple[Mode, ...] = (Mode.OUT_OF_PLACE, Mode.IN_PLACE)
    iterations: PositiveInt | None = None
    warmup: PositiveInt = 5
    check: bool = True
    seed: NonNegativeInt = 1
    timeout_s: float = Field(default=60.0, gt=0)
    budget_s: float = Field(default=0.25, gt=0)
    graph: bool = False
    launcher: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> BenchRequest:
        listed = [rank for group in self.groups for rank in group]
        if len({len(g) for g in self.groups}) != 1 or len(self.groups[0]) < 2:
            raise ValueError("groups: every group needs the same number of ranks, at least two")
        if len(set(listed)) != len(listed) or max(listed) >= self.ranks:
            raise ValueError(f"groups: each of the ranks 0..{self.ranks - 1} can be in one group at most")
        if self.network.emulate is None and self.hosts > 1 and self.launcher is None:
            raise ValueError(
                f"network '{self.network.name}' is native: it exists only on this machine, with one host; use "
                "--hosts 1 or an emulated network, or start the ranks with torchrun, Slurm or mpirun"
            )
        if self.graph and self.backend is not Backend.NCCL:
            raise ValueError(f"-G: CUDA graphs are for --backend nccl, not {self.backend}")
        if self.backend is Backend.MPI and self.element.mpi is None:
            have = ", ".join(d.name for d in DTYPES.values() if d.mpi)
            raise ValueError(f"dtype: MPI has no type for {self.dtype}; it has {have}")
        if self.network.emulate is not None and self.hosts > MAX_EMULATED_HOSTS:
            raise ValueError(f"hosts: {self.hosts} emulated hosts are too many; use at most {MAX_EMULATED_HOSTS}")
        return self

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def ranks_here(self) -> int:
        """Returns the number of ranks on this machine: all of them, unless a launcher distributed them."""
        return self.ranks_per_host if self.launcher else self.ranks

    @property
    def link_bps(self) -> float | None:
        """Returns the shaped rate of each rank's own link in bits per second; None if ranks share a link or
        nothing is shaped.
        """
        alone = self.hosts > 1 and self.ranks_per_host == 1 and self.launcher is None
        return self.network.emulate.rate if alone and self.network.emulate is not None else None

    @property
    def group_size(self) -> int:
        return len(self.groups[0])

    @property
    def element(self) -> DType:
        return dtype_named(self.dtype)

    @property
    def largest_bytes(self) -> int:
        return max(self.sizes_bytes)

    @property
    def measurements(self) -> int:
        """Returns the number of rows that the benchmark will have."""
        sized = [c for c in self.collectives if c != BARRIER]
        modes = sum(self.modes_of(c) for c in sized)
        return modes * len(self.sizes_bytes) + len(self.collectives) - len(sized)

    def modes_of(self, collective: str) -> int:
        """Returns how many of the requested modes a collective has, at least one."""
        return len(self.modes) if COLLECTIVES[collective].in_place else 1

    def check_sizes(self) -> None:
        """Raises SpecError for the first size that a collective can't have."""
        for name in self.collectives:
            if name != BARRIER:
                for size in self.sizes_bytes:
                    COLLECTIVES[name].elements(size, self.element.item_bytes, self.group_size)
            if name in COLLECTIVES and COLLECTIVES[name].pairs and self.group_size % 2:
                raise SpecError(f"{name} needs pairs: groups of {self.group_size} ranks leave one over")


def size_range(
    smallest: int, largest: int, *, factor: int | None = None, step_bytes: int | None = None
) -> list[int]:
    """Returns sizes as nccl-tests does: from smallest to largest by a factor or a step, doubled by default.

    Raises:
        SpecError: for an invalid range.
    """
    if smallest < 1 or largest < smallest:
        raise SpecError(f"sizes go from a smaller one (-b {smallest}) to a larger one (-e {largest})")
    if factor is not None and step_bytes is not None:
        raise SpecError("sizes grow by a factor (-f) or by a step (-i), not both")
    if factor is not None and factor < 2:
        raise SpecError(f"a factor (-f) is 2 or more, not {factor}")
    if step_bytes is not None and step_bytes < 1:
        raise SpecError(f"a step (-i) is 1 B or more, not {step_bytes}")
    sizes = [smallest]
    while True:
        following = sizes[-1] + step_bytes if step_bytes else sizes[-1] * (factor or 2)
        if following > largest:
            return sizes
        sizes.append(following)
        if len(sizes) > MAX_SIZES:
            raise SpecError(f"more than {MAX_SIZES} sizes; take a larger step (-i) or a factor (-f 2)")


def group_lists(text: str, hosts: int, ranks_per_host: int) -> tuple[tuple[int, ...], ...]:
    """Parses process groups from '2' (two rings that each span all hosts, with the k-th rank of each host in ring
    k mod 2) or from lists of ranks ('0,2:1,3').

    Raises:
        SpecError: if the text is neither, or the ranks can't be divided.
    """
    ranks = hosts * ranks_per_host
    if text.strip().isdigit():
        count = int(text)
        if count < 1 or (ranks_per_host % count and ranks % count):
            raise SpecError(f"{ranks} ranks don't divide into {count} groups")
        if hosts > 1 and ranks_per_host % count:
            raise SpecError(
                f"{count} rings that share every host need a multiple of {count} ranks on each "
                f"(--ranks-per-host), not {ranks_per_host}"
            )
        if hosts > 1:
            return tuple(
                tuple(r for r in range(ranks) if r % ranks_per_host % count == group) for group in range(count)
            )
        size = ranks // count
        return tuple(tuple(range(group * size, (group + 1) * size)) for group in range(count))
    try:
        return tuple(tuple(int(rank) for rank in part.split(",")) for part in text.split(":"))
    except ValueError as error:
        raise SpecError(f"groups are a number or lists of ranks like 0,2:1,3, not '{text}'") from error
