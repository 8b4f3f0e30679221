"""Takes nodes out of a step and puts new ones in, with everything that refers to their positions moved along."""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.whatif.nodes import HOST, JOIN, NONE, WORK, Step

Place = tuple[int, int]  # (steps back, position)


@dataclass
class Node:
    """A node to put in. `waits` names positions of the step before rewriting; `key` names the node
    so that others can refer to it."""

    kind: int
    stream: int
    gap: float
    length: float
    delay: float = 0.0
    join: int = NONE
    key: str = ""
    launch_key: str = ""
    waits: list[Place] = field(default_factory=list)


@dataclass
class Rewriting:
    """What to change in a step: positions to leave out, nodes to put in after a position, and new waits of old
    nodes on new ones (`waits_on`: position -> keys of nodes of this step, or of the step before with `back`)."""

    leave_out: set[int] = field(default_factory=set)
    put_in: dict[int, list[Node]] = field(default_factory=dict)
    waits_on: dict[int, list[str]] = field(default_factory=dict)


class _Rewriter:
    """Copies a step node by node, with changes."""

    def __init__(self, step: Step, change: Rewriting) -> None:
        self.old, self.change = step, change
        self.new = Step([], [], [], [], [], [], [], [], {}, NONE, NONE)
        self.moved: dict[int, int] = {}  # old position -> new one
        self.host_after: dict[int, int] = {}  # old host position -> the new position that its followers follow
        self.keys: dict[str, int] = {}
        self.late: list[tuple[int, list[Place], list[str]]] = []

    def node(self, old: int) -> None:
        """Takes an old node over, or leaves it out, and puts new ones in after it."""
        if old in self.change.leave_out:
            self._leave_out(old)
        else:
            self._take(old)
        for node in self.change.put_in.get(old, ()):
            self._put_in(old, node)

    def _leave_out(self, old: int) -> None:
        before = self.old.ref[old]
        self.moved[old] = NONE
        if self.old.kind[old] == HOST:
            self.host_after[old] = self.host_after.get(before, NONE) if before >= 0 else NONE
            self.moved[old] = self.host_after[old]

    def _take(self, old: int) -> None:
        step, new = self.old, self.new
        at = self.moved[old] = len(new.kind)
        ref = step.ref[old]
        targets = self.host_after if step.kind[old] == HOST else self.moved
        self._append(
            (step.kind[old], targets.get(ref, NONE) if ref >= 0 else NONE, step.stream[old], step.join[old]),
            (step.gap[old], step.delay[old], step.length[old]),
            step.row[old],
        )
        self.late.append((at, step.waits.get(old, []), self.change.waits_on.get(old, [])))
        if step.kind[old] not in (WORK, JOIN):
            self.host_after[old] = new.last_host = at
        if old == step.first:
            new.first = at

    def _put_in(self, old: int, node: Node) -> None:
        at = len(self.new.kind)
        if node.key:
            self.keys[node.key] = at
        if node.kind == HOST:
            ref = self.host_after.get(old, NONE)
            self.host_after[old] = self.new.last_host = at
        else:
            ref = self.keys.get(node.launch_key, NONE)
        self._append((node.kind, ref, node.stream, node.join), (node.gap, node.delay, node.length), NONE)
        self.late.append((at, node.waits, []))

    def _append(self, what: tuple[int, int, int, int], times: tuple[float, float, float], row: int) -> None:
        new = self.new
        for column, value in zip((new.kind, new.ref, new.stream, new.join), what, strict=True):
            column.append(value)
        for column, time in zip((new.gap, new.delay, new.length), times, strict=True):
            column.append(time)
        new.row.append(row)

    def finish(self, moved_before: dict[int, int] | None) -> Step:
        """Returns the new step with the waits of its nodes."""
        for at, waits, added in self.late:
            places = []
            for back, position in waits:
                mapping = self.moved if back == 0 else moved_before if back == 1 else None
                to = position if mapping is None else mapping.get(position, NONE)
                if to >= 0 and (back > 0 or to < at):
                    places.append((back, to))
            places += [(0, self.keys[key]) for key in added if key in self.keys and self.keys[key] < at]
            if places:
                self.new.waits[at] = places
        if self.new.first == NONE:
            self.new.first = next((i for i, k in enumerate(self.new.kind) if k in (WORK, JOIN)), NONE)
        return self.new


def rewrite(step: Step, change: Rewriting, moved_before: dict[int, int] | None) -> tuple[Step, dict[int, int]]:
    """Returns the changed step, and where each old position has gone (-1: left out).

    Args:
        moved_before: the same mapping of the step before, for waits that reach back into it.
    """
    rewriter = _Rewriter(step, change)
    for old in range(len(step.kind)):
        rewriter.node(old)
    return rewriter.finish(moved_before), rewriter.moved
