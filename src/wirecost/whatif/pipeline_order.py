"""What each operation of a pipelined step waits for, and which operations end together.

The model is the one of the OSDI 2025 study of stragglers (arXiv:2505.05713, section 3): computing of a stage
runs in recorded order; so do messages of one kind; a receive comes before the computing that needs it and after
the computing before that; sends follow their computing; the gradients' collectives and the optimizer follow the
last computing. A message ends on both stages together, a data-parallel collective on all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from wirecost.whatif.operation_table import COMPUTE, POINT_TO_POINT, Name, Operations

_CLOCKS_S = 5e-5  # by which the clocks of two stages may differ
_PEER = {
    "forward-send": ("forward-recv", 1),
    "forward-recv": ("forward-send", -1),
    "backward-send": ("backward-recv", -1),
    "backward-recv": ("backward-send", 1),
}
_DP = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_CLIP, _EMBEDDING = "optimizer-clip-main-grad", "embedding-grads-all-reduce"


@dataclass
class Order:
    """`after[i]` holds the operations that operation i waits for; `together` the groups that end together (each
    with whether it does so on all data-parallel ranks too); all by number."""

    after: dict[int, list[int]]
    together: list[tuple[list[int], bool]]


@dataclass
class _Builder:
    operations: Operations
    number: dict[Name, int]
    after: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    together: list[tuple[list[int], bool]] = field(default_factory=list)

    def of(self, stage: int, kinds: tuple[str, ...]) -> list[int]:
        """Returns a stage's operations of some kinds in the order of their start on the first rank and step."""
        start = self.operations.start[:, 0]
        names = self.operations.names
        mine = [i for i, (kind, _, s) in enumerate(names) if s == stage and kind in kinds]
        return sorted(mine, key=lambda i: (start[i], names[i][1], names[i][0]))

    def chain(self, members: list[int | None], last: list[int] | None = None) -> None:
        last = list(last or [])
        for member in members:
            if member is not None:
                self.after[member].extend(last)
                last = [member]


def order_of(operations: Operations) -> Order:
    """Returns the order of a table's operations, from its first step and data-parallel rank."""
    builder = _Builder(operations, {name: i for i, name in enumerate(operations.names)})
    _messages(builder)
    kinds = {kind for kind, _, _ in operations.names}
    for stage in range(operations.stages):
        builder.chain(list(builder.of(stage, COMPUTE)))
        for kind in POINT_TO_POINT:
            builder.chain(list(builder.of(stage, (kind,))))
        _first_backward(builder, stage)
    parallel = operations.dp > 1 or bool(kinds & set(_DP))
    overlapped = "separate-grads-all-reduce" in kinds
    for stage in range(operations.stages):
        if parallel:
            builder.chain(list(builder.of(stage, ("params-all-gather", "grads-reduce-scatter"))))
            _gathered_parameters(builder, stage)
            if overlapped:
                _reduced_gradients(builder, stage)
        _after_computing(builder, stage, parallel, overlapped)
    for i, (kind, _, _) in enumerate(operations.names):
        if parallel and kind in _DP:
            builder.together.append(([i], True))
    ends = {0, operations.stages - 1}
    embedding = [i for i, (kind, _, stage) in enumerate(operations.names) if kind == _EMBEDDING and stage in ends]
    clip = [i for i, (kind, _, _) in enumerate(operations.names) if kind == _CLIP]
    builder.together += [(group, dp) for group, dp in ((embedding, False), (clip, True)) if group]
    return Order(dict(builder.after), builder.together)


def _messages(builder: _Builder) -> None:
    operations = builder.operations
    pairs: dict[tuple, list[int]] = defaultdict(list)
    for stage in range(operations.stages):
        sent: dict[str, int] = defaultdict(int)
        for kind in POINT_TO_POINT:
            matched = _matched(builder, stage, kind)
            for i in builder.of(stage, (kind,)):
                compute = matched.get(i)
                if compute is not None:
                    _beside_compute(builder, i, compute, kind)
                if compute is None or _leads_nowhere(operations, kind, compute):
                    builder.together.append(([i], False))
                    continue
                peer, step = _PEER[kind]
                there = (stage + step) % operations.stages
                ends = tuple(sorted([(kind, sent[kind], stage), (peer, sent[kind], there)]))
                sent[kind] += 1
                pairs[ends].append(i)
    builder.together += [(group, False) for group in pairs.values()]


def _matched(builder: _Builder, stage: int, kind: str) -> dict[int, int]:
    """Returns for each message the computing that it belongs to; messages without any move nothing."""
    operations = builder.operations
    direction, way = kind.split("-")
    start, end = operations.start[:, 0], operations.end[:, 0]
    computing = builder.of(stage, (f"{direction}-compute",))
    messages = builder.of(stage, (kind,))
    if not computing or not messages:
        return {}
    if way == "recv":
        valid = [i for i in messages if not start[i] > max(start[c] for c in computing) + np.float32(_CLOCKS_S)]
    else:
        valid = [i for i in messages if not end[i] < min(end[c] for c in computing) - np.float32(_CLOCKS_S)]
    # The first stage may lack the first receive.
    first = 1 if way == "recv" and len(valid) + 1 == len(computing) else 0
    found = {}
    for place, message in enumerate(valid, start=first):
        compute = builder.number.get((f"{direction}-compute", place, stage))
        if compute is not None:
            found[message] = compute
    return found


def _leads_nowhere(operations: Operations, kind: str, compute: int) -> bool:
    chunk = operations.gmc[compute] + _PEER[kind][1]
    chunks = (max(operations.mc) + 1) * operations.stages
    return not 0 <= chunk < chunks


def _beside_compute(builder: _Builder, message: int, compute: int, kind: str) -> None:
    if kind.endswith("send"):
        builder.after[message].append(compute)
        return
    builder.after[compute].append(message)
    name, place, stage = builder.operations.names[compute]
    before = builder.number.get((name, place - 1, stage))
    if before is not None:
        builder.after[message].append(before)


def _first_backward(builder: _Builder, stage: int) -> None:
    """The first messages of the backward pass follow the forward computing two before its first computing."""
    computing = builder.of(stage, COMPUTE)
    names = builder.operations.names
    first = next((p for p, i in enumerate(computing) if names[i][0] == "backward-compute"), 0)
    if first < 2:
        return
    for kind in ("backward-recv", "backward-send"):
        message = builder.number.get((kind, 0, stage))
        if message is not None:
            builder.after[message].append(computing[first - 2])


def _gathered_parameters(builder: _Builder, stage: int) -> None:
    operations = builder.operations
    forward = builder.of(stage, ("forward-compute",))
    gathers = [i for i, (kind, _, s) in enumerate(operations.names) if kind == "params-all-gather" and s == stage]
    seen: set[int] = set()
    for gather in sorted(gathers, key=lambda i: -operations.names[i][1]):
        chunk = operations.mc[gather]
        mine = [i for i in forward if operations.mc[i] == chunk]
        if chunk in seen or not mine:
            continue
        seen.add(chunk)
        builder.after[min(mine, key=lambda i: operations.start[i, 0])].append(gather)


def _reduced_gradients(builder: _Builder, stage: int) -> None:
    operations = builder.operations
    backward = builder.of(stage, ("backward-compute",))
    reduces = [
        i for i, (kind, _, s) in enumerate(operations.names) if kind == "grads-reduce-scatter" and s == stage
    ]
    seen: set[int] = set()
    for reduce in sorted(reduces, key=lambda i: operations.names[i][1]):
        chunk = operations.mc[reduce]
        mine = [i for i in backward if operations.mc[i] == chunk]
        if chunk in seen or not mine:
            continue
        seen.add(chunk)
        builder.after[reduce].append(max(mine, key=lambda i: operations.end[i, 0]))


def _after_computing(builder: _Builder, stage: int, parallel: bool, overlapped: bool) -> None:
    operations, number = builder.operations, builder.number
    computing = builder.of(stage, COMPUTE)
    if not computing:
        return
    last = max(computing, key=lambda i: operations.end[i, 0])
    collector = number.get(("gc", 0, stage))
    if collector is not None:
        builder.after[collector].append(last)
    begun = [last if collector is None else collector]
    at_an_end = stage in (0, operations.stages - 1)
    one = [number.get(("layernorm-grads-all-reduce", 0, stage))]
    one += [number.get((_EMBEDDING, 0, stage))] if at_an_end else []
    reduces = sorted(
        (n for n in operations.names if n[0] == "grads-reduce-scatter" and n[2] == stage), key=lambda n: n[1]
    )
    finish = [number.get((_CLIP, 0, stage)), number.get(("optimizer", 0, stage))]
    if parallel and overlapped:
        begun += [number[reduces[-1]]] if reduces else []
        builder.chain([*one, number.get(("separate-grads-all-reduce", 0, stage)), *finish], begun)
    elif parallel:
        builder.chain([*one, *(number[n] for n in reduces), *finish], begun)
    else:
        builder.chain([*one, *finish], begun)
