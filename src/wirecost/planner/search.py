"""Evaluates all plans of a space with the cost model, and keeps time and memory of those that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wirecost.costmodel.inputs import Machine, Shape
from wirecost.costmodel.iteration import Iteration, iterate, iterate_memory
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.workload_correction import corrected
from wirecost.planner.choices import Choice
from wirecost.planner.constraints import holding
from wirecost.planner.question import Question
from wirecost.planner.space import Mode, Space, space_of

CHUNK = 16384
"""Plans that are evaluated at once: their arrays stay in the processor's caches."""
MOST_UNCERTAIN = 3
"""Most plans that may not fit of an answer that has others."""
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Machines = Callable[[int, int], Machine]
"""Returns the machine under a stack (its place in the question) and for a micro-batch."""
Tell = Callable[[int, int], None]
"""Receiver of the progress: plans evaluated, and plans in all."""


@dataclass(frozen=True)
class Uncertain:
    """A plan that may not fit: its upper end of memory is more than there is, its lower end is not.

    Attributes:
        choice: the plan.
        stack: place of its stack in the question.
        total_s: its iteration time in seconds.
        least_bytes, memory_bytes: lower and upper end of its memory.
    """

    choice: Choice
    stack: int
    total_s: float
    least_bytes: float
    memory_bytes: float


@dataclass(frozen=True)
class Found:
    """The plans that fit, from the fastest to the slowest; those that may not fit are among them if none fits for
    certain, or if the question ranks them. Arrays have the shape (plans,).

    Attributes:
        space: all legal plans.
        shape: the model as the formulas read it.
        row, mode: place of each plan's degrees in `space.columns`, and of its mode in `modes`.
        modes: the modes, with the stacks (places in the question).
        total_s: iteration time in seconds.
        memory_bytes: memory of the fullest rank, the upper end of its interval.
        comm_fraction: exposed communication over the iteration time.
        legal: number of legal plans.
        is_certain: whether all of them fit for certain.
        uncertain: the fastest of the plans that may not fit, with one of each set of TP, PP, CP and EP, if they
            are faster than the fastest that fits.
        uncertain_count: number of plans that may not fit.
        smallest: the legal plan of the least memory, and the lower end of its memory in bytes. None without legal
            plans.
    """

    space: Space
    shape: Shape
    row: Indices
    mode: Indices
    modes: tuple[tuple[Mode, int], ...]
    total_s: Floats
    memory_bytes: Floats
    comm_fraction: Floats
    legal: int
    is_certain: bool
    uncertain: tuple[Uncertain, ...]
    uncertain_count: int
    smallest: tuple[Choice, float] | None

    def __len__(self) -> int:
        return len(self.total_s)

    def choice(self, place: int) -> Choice:
        """Returns the plan at a place."""
        return self.space.choice(int(self.row[place]), self.modes[int(self.mode[place])][0])

    def column(self, name: str) -> Floats:
        """Returns a quantity of all plans: a column of the space, or a value of the modes."""
        if name in self.space.columns:
            return self.space.columns[name][self.row]
        if name == "schedule":
            given = np.array([mode.schedule for mode, _ in self.modes])[self.mode]
            return np.where(given > 0, given, self.space.columns["vpp"][self.row] > 1)
        return np.array([mode.values[name] for mode, _ in self.modes])[self.mode]

    def iterations(self, places: Indices, machines: Machines) -> Iterator[tuple[Indices, Iteration]]:
        """Yields the iterations of plans, as many at once as share a mode, with their places."""
        for number in np.unique(self.mode[places]):
            mode, stack = self.modes[int(number)]
            own = places[self.mode[places] == number]
            for chosen, machine in _by_machine(self.space, self.row[own], stack, machines):
                with np.errstate(all="ignore"):
                    yield (
                        own[chosen],
                        iterate(self.shape, self.space.layout(self.row[own[chosen]], mode, stack), machine),
                    )


def machines_of(question: Question) -> Machines:
    """Returns the function that gives the machines of a question. A micro-batch of 0 is any."""
    known: dict[tuple[int, int], Machine] = {}

    def machine(number: int, micro_batch: int) -> Machine:
        key = (number, micro_batch)
        if key not in known:
            stack = question.stacks[number]
            plain = machine_of(question.cluster, stack, question.precision, question.matrix_precision)
            known[key] = corrected(plain, stack, question.workload, micro_batch) if micro_batch else plain
        return known[key]

    return machine


def search(question: Question, tell: Tell | None = None) -> Found:
    """Returns all plans of a question that fit in memory and meet its constraints. Those that may not fit are
    searched too."""
    space = space_of(question)
    work = _Work(space, shape_of(question.workload), machines_of(question), usable=question.usable_bytes)
    alike: dict[tuple[Mode, int], list[Mode]] = {}
    for stack, modes in enumerate(space.modes):
        for mode in modes:
            alike.setdefault((mode.without_order, stack), []).append(mode)
    groups = [(base, stack, modes) for (base, stack), modes in alike.items()]
    total = sum(len(space.rows_of(mode, stack)) for _, stack, modes in groups for mode in modes) if tell else 0
    for base, stack, modes in groups:
        work.evaluate(base, modes, stack)
        if tell is not None:
            tell(work.legal, total)
    return work.found()


@dataclass
class _Work:
    """The plans evaluated so far."""

    space: Space
    shape: Shape
    machines: Machines
    usable: float
    legal: int = 0
    smallest: tuple[Choice, float] | None = None
    modes: list[tuple[Mode, int]] = field(default_factory=list)
    parts: list[tuple[Indices, Indices, Floats, Floats, Floats, Floats]] = field(default_factory=list)

    def evaluate(self, base: Mode, modes: list[Mode], stack: int) -> None:
        """Evaluates modes that have the memory of `base`."""
        space = self.space
        rows = space.rows_of(base, stack)
        if not len(rows):
            return
        memory, least = np.full((2, len(space)), np.inf)
        memory[rows], least[rows] = self._memory(rows, base, stack)
        for mode in modes:
            own = space.rows_of(mode, stack)
            self.legal += len(own)
            if not len(own):
                continue
            self._keep_smallest(own, least, mode)
            limits = holding(space.question.constraints, {"memory": memory[own]}, len(own))
            own = own[(least[own] <= self.usable) & limits]
            self.modes.append((mode, stack))
            for chosen, machine in _by_machine(space, own, stack, self.machines):
                self._time(own[chosen], (memory, least), mode, machine)

    def _memory(self, rows: Indices, mode: Mode, stack: int) -> Floats:
        """Returns the upper and the lower end of the memory, of shape (2, rows)."""
        machine = self.machines(stack, 0)
        sizes = np.empty((2, len(rows)))
        with np.errstate(all="ignore"):
            for start in range(0, len(rows), CHUNK):
                layout = self.space.layout(rows[start : start + CHUNK], mode, stack)
                need = iterate_memory(self.shape, layout, machine)
                sizes[0, start : start + CHUNK] = need.total
                sizes[1, start : start + CHUNK] = need.least
        return sizes

    def _keep_smallest(self, rows: Indices, least: Floats, mode: Mode) -> None:
        row = int(rows[np.argmin(least[rows])])
        if self.smallest is None or least[row] < self.smallest[1]:
            self.smallest = (self.space.choice(row, mode), float(least[row]))

    def _time(self, rows: Indices, sizes: tuple[Floats, Floats], mode: Mode, machine: Machine) -> None:
        number = len(self.modes) - 1
        stack = self.modes[number][1]
        with np.errstate(all="ignore"):
            for start in range(0, len(rows), CHUNK):
                own = rows[start : start + CHUNK]
                times = iterate(self.shape, self.space.layout(own, mode, stack), machine)
                total = np.broadcast_to(np.asarray(times.total_s, dtype=np.float64), (len(own),))
                share = np.broadcast_to(np.asarray(times.comm_fraction, dtype=np.float64), (len(own),))
                kept = np.isfinite(total) & (total > 0)
                kept &= holding(self.space.question.constraints, {"time": total}, len(own))
                places = np.full(int(kept.sum()), number)
                memory, least = (size[own[kept]] for size in sizes)
                self.parts.append((own[kept], places, total[kept], memory, least, share[kept]))

    def found(self) -> Found:
        """Returns the plans that fit, from the fastest on."""
        empty = np.empty(0)
        listed = self.parts or [(empty.astype(int), empty.astype(int), empty, empty, empty, empty)]
        row, mode, total, memory, least, share = (np.concatenate(column) for column in zip(*listed, strict=True))
        # If plans take the same time, the one with less memory comes first.
        order = np.lexsort((memory, total))
        over = memory[order] > self.usable
        certain = not over.all() and not self.space.question.ranks_uncertain
        uncertain: list[Uncertain] = []
        if certain:
            faster = order[over & (total[order] < total[order[int(np.argmin(over))]])]
            degrees = np.stack([self.space.columns[name][row[faster]] for name in ("tp", "pp", "cp", "ep")])
            first = np.sort(np.unique(degrees, axis=1, return_index=True)[1])
            for place in faster[first[:MOST_UNCERTAIN]]:
                kind, stack = self.modes[int(mode[place])]
                choice = self.space.choice(int(row[place]), kind)
                sizes = float(least[place]), float(memory[place])
                uncertain.append(Uncertain(choice, stack, float(total[place]), *sizes))
            order = order[~over]
        return Found(
            space=self.space,
            shape=self.shape,
            row=row[order],
            mode=mode[order],
            modes=tuple(self.modes),
            total_s=total[order],
            memory_bytes=memory[order],
            comm_fraction=share[order],
            legal=self.legal,
            is_certain=not over.any() or certain,
            uncertain=tuple(uncertain),
            uncertain_count=int(over.sum()),
            smallest=self.smallest,
        )


def _by_machine(space: Space, rows: Indices, stack: int, machines: Machines) -> Iterator[tuple[Indices, Machine]]:
    """Yields places in `rows` of plans that share a machine, with it. The machine depends on the micro-batch only
    where runs of a workload corrected the stack."""
    if not space.question.stacks[stack].accuracy.workload_corrections:
        yield np.arange(len(rows)), machines(stack, 0)
        return
    sizes = space.columns["mb"][rows]
    for size in np.unique(sizes):
        yield np.flatnonzero(sizes == size), machines(stack, int(size))
