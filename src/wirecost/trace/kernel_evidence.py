"""Why one rank computes longer than another: more kernels, all kernels slower, or some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from wirecost.trace.rank import RankTrace

MORE, SLOWER, SOME = "more", "slower", "some"
# A kind of difference explains the longer time from this share of it on.
_EXPLAINS = 0.5
# A GPU counts as slower if kernels with this share of the time are slower.
_MOST = 0.7


class Longer(msgspec.Struct):
    """What makes the compute kernels of one rank take longer than those of another.

    `kind`: MORE kernels; nearly all of them SLOWER, `ratio` times on average; or SOME slower. `name` is the kernel
    with the largest share of it, `calls` how many more calls of it there are per iteration, `ns` its extra time
    per iteration.
    """

    kind: str
    name: str
    calls: float
    ns: float
    ratio: float


def longer(late: RankTrace, other: RankTrace) -> Longer | None:
    """Returns why `late` computes longer than `other`; None where its kernels don't take longer."""
    mine, theirs = _by_name(late), _by_name(other)
    iterations = max(len(late.iterations), 1)
    more = {n: max(0.0, c - theirs.get(n, (0, 0))[0]) * t / c for n, (c, t) in mine.items()}
    common = {n: min(c, theirs[n][0]) for n, (c, _) in mine.items() if n in theirs}
    means = {n: (mine[n][1] / mine[n][0], theirs[n][1] / theirs[n][0]) for n in common}
    slower = {n: common[n] * (m - t) for n, (m, t) in means.items()}
    difference = sum(t for _, t in mine.values()) - sum(t for _, t in theirs.values())
    if difference <= 0:
        return None
    if sum(more.values()) >= _EXPLAINS * difference:
        name = max(more, key=lambda n: more[n])
        calls = (mine[name][0] - theirs.get(name, (0, 0))[0]) / iterations
        return Longer(MORE, name, calls, more[name] / iterations, 1.0)
    if not slower or sum(slower.values()) < _EXPLAINS * difference:
        return None
    base = sum(common[n] * means[n][1] for n in common)
    ratio = 1 + sum(slower.values()) / base if base else 1.0
    name = max(slower, key=lambda n: slower[n])
    affected = sum(common[n] * means[n][1] for n in common if means[n][0] / means[n][1] - 1 > 0.5 * (ratio - 1))
    kind = SLOWER if affected >= _MOST * base else SOME
    return Longer(kind, name, 0.0, slower[name] / iterations, ratio)


def slowdown_ns(trace: RankTrace, other: RankTrace) -> float:
    """Returns how much longer, per iteration, kernels of `trace` take than the same kernels of `other`.

    Kernels that take less time are not subtracted.
    """
    mine, theirs = _by_name(trace), _by_name(other)
    extra = (
        min(c, theirs[n][0]) * max(0.0, t / c - theirs[n][1] / theirs[n][0])
        for n, (c, t) in mine.items()
        if n in theirs
    )
    return sum(extra) / max(len(trace.iterations), 1)


def _by_name(trace: RankTrace) -> dict[str, tuple[int, int]]:
    """Returns (count, ns) of each compute kernel."""
    sums: dict[str, tuple[int, int]] = {}
    for use in trace.kernels:
        if use.kind == "kernel" and not use.communicates and use.total_ns > 0:
            count, ns = sums.get(use.name, (0, 0))
            sums[use.name] = (count + use.count, ns + use.total_ns)
    return sums


def short_name(name: str, width: int = 60) -> str:
    """Returns a kernel's name without return type, template arguments, parameters and namespaces."""
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    text = _without(text, "<", ">").split("(", 1)[0].rstrip()
    last = text.rsplit("::", 1)[-1] or text or name
    return last if len(last) <= width else last[: width - 1] + "…"


def _without(text: str, opening: str, closing: str) -> str:
    characters: list[str] = []
    depth = 0
    for character in text:
        if character == opening:
            depth += 1
        elif character == closing and depth:
            depth -= 1
        elif not depth:
            characters.append(character)
    return "".join(characters)
