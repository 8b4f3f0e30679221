"""Takes nodes out of a step and puts new ones in, with everything that refers to their positions moved along."""

from __future__ import annotations

from dataclasses import dataclass, field

from wirecost.whatif.graph import HOST, NONE, Step

Place = tuple[int, int]  # (steps back, position)


@dataclass
class Node:
    """A node to put in. `host_ref` and `waits` name positions of the step before rewriting; `key` names the node so
    that others can refer to it."""

    kind: int
    stream: int
    gap: float
    length: float
    delay: float = 0.0
    join: int = NONE
    after_host: int | None = None
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


def rewrite(step: Step, change: Rewriting, moved_before: dict[int, int] | None) -> tuple[Step, dict[int, int]]:
    """Returns the changed step, and where each old position has gone (those left out: to what they followed).

    Args:
        moved_before: the same mapping of the step before, for waits that reach back into it.
    """
    new = Step([], [], [], [], [], [], [], [], {}, NONE, NONE)
    moved: dict[int, int] = {}
    host_after: dict[int, int] = {}  # old host position -> the new position that its followers follow
    keys: dict[str, int] = {}
    late: list[tuple[int, list[Place], list[str]]] = []
    for old in range(len(step.kind)):
        if old in change.leave_out:
            if step.kind[old] == HOST:
                before = step.ref[old]
                host_after[old] = host_after.get(before, NONE) if before >= 0 else NONE
                moved[old] = host_after[old]
            else:
                moved[old] = NONE
        else:
            at = len(new.kind)
            moved[old] = at
            ref = step.ref[old]
            new.kind.append(step.kind[old])
            new.ref.append(host_after.get(ref, NONE) if ref >= 0 and step.kind[old] == HOST else
                           moved.get(ref, NONE) if ref >= 0 else NONE)  # fmt: skip
            new.stream.append(step.stream[old])
            new.gap.append(step.gap[old])
            new.delay.append(step.delay[old])
            new.length.append(step.length[old])
            new.join.append(step.join[old])
            new.row.append(step.row[old])
            late.append((at, step.waits.get(old, []), change.waits_on.get(old, [])))
            if step.kind[old] not in (1, 2):
                host_after[old] = at
                new.last_host = at
            if old == step.first:
                new.first = at
        for node in change.put_in.get(old, ()):
            at = len(new.kind)
            if node.key:
                keys[node.key] = at
            new.kind.append(node.kind)
            if node.kind == HOST:
                after = old if node.after_host is None else node.after_host
                new.ref.append(host_after.get(after, NONE))
                host_after[after] = at
                new.last_host = max(new.last_host, at)
            else:
                new.ref.append(keys.get(node.launch_key, NONE))
            new.stream.append(node.stream)
            new.gap.append(node.gap)
            new.delay.append(node.delay)
            new.length.append(node.length)
            new.join.append(node.join)
            new.row.append(NONE)
            late.append((at, node.waits, []))
    for at, waits, added in late:
        places = []
        for back, position in waits:
            mapping = moved if back == 0 else moved_before if back == 1 else None
            to = position if mapping is None else mapping.get(position, NONE)
            if to >= 0 and (back > 0 or to < at):
                places.append((back, to))
        places += [(0, keys[key]) for key in added if key in keys and keys[key] < at]
        if places:
            new.waits[at] = places
    if new.first == NONE:
        new.first = next((i for i, k in enumerate(new.kind) if k in (1, 2)), NONE)
    return new, moved
