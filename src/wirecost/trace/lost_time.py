"""What the time goes to, in plain words: the largest loss first, and what to try against it."""

from __future__ import annotations

import msgspec
import numpy as np

from wirecost.diagnostics import KINDS, Diagnostic, diagnostic
from wirecost.trace.compare_ranks import steady_iterations
from wirecost.trace.matched_traces import MatchedTraces

# Below this mean size a ring is bound by latency rather than by bandwidth on current networks (NCCL switches
# from its low-latency protocols to Simple around here).
_SMALL_BYTES = 1 << 20
_WORTH = 0.02  # a loss below two percent of the window isn't worth a sentence
_EVEN = 0.05  # compute within five percent over the ranks counts as even


class LostTime(msgspec.Struct):
    """Time without computation: what it is, its share of all windows, and its mean per iteration and rank."""

    diagnostic: Diagnostic
    share: float
    mean_ns: float

    @property
    def code(self) -> str:
        """The code of the diagnostic."""
        return self.diagnostic.code


class _Totals:
    """Sums over the steady iterations of all ranks (the whole windows of ranks without iterations)."""

    def __init__(self, s: MatchedTraces) -> None:
        self.windows = 0
        self.marked = any(t.iterations for t in s.traces)
        self.window = self.compute = self.comm = self.overlapped = self.exposed = self.memory = self.idle = 0
        self.wait = self.transfer = self.first = 0.0
        for trace, waits, kept in zip(s.traces, s.waits, steady_iterations(s.traces), strict=True):
            parts = [trace.iterations[n].parts for n in kept]
            if not trace.iterations and trace.parts is not None:
                parts.append(trace.parts)
            for p in parts:
                self.windows += 1
                self.window += p.window_ns
                self.compute += p.compute_ns
                self.comm += p.comm_ns
                self.overlapped += p.overlapped_ns
                self.exposed += p.exposed_comm_ns
                self.memory += p.exposed_memory_ns
                self.idle += p.idle_ns
            calls = trace.calls
            inside = np.isin(calls.iteration, kept) | (not trace.iterations)
            known = inside & (waits >= 0) & (calls.end_ns > calls.start_ns)
            duration = np.maximum(calls.end_ns - calls.start_ns, 1)
            # Where in a call its exposed part lies isn't kept: wait and transfer share it by their length.
            share = np.where(known, waits / duration, 0.0) * calls.exposed_ns
            self.wait += float(share[known].sum())
            self.transfer += float((calls.exposed_ns - share)[known].sum())
            if known.any() and known[0]:
                self.first += float(share[0])


def ms(ns: float) -> str:
    return f"{ns / 1e6:.3f} ms" if ns < 1e8 else f"{ns / 1e6:.1f} ms"


def lost_time(s: MatchedTraces) -> list[LostTime]:
    """Returns every loss worth a sentence, largest share first; waiting apart from moving data where wait is
    known."""
    t = _Totals(s)
    if not t.windows or not t.window:
        return []
    losses = [_idle(s, t), _memory(t)]
    known = t.wait + t.transfer
    if known > 0.5 * t.exposed:
        losses += [_wait(s, t), _transfer(s, t, t.transfer, "moving data"), _unmatched(t, t.exposed - known)]
    else:
        losses.append(_transfer(s, t, float(t.exposed), "communicating"))
    worth = [f for f in losses if f.share >= _WORTH]
    return sorted(worth, key=lambda f: -f.share)


def _lost(code: str, total: float, t: _Totals, text: str, remedy: str | None = None) -> LostTime:
    """Returns a loss; its remedy is the registry's where none is given."""
    share, mean = total / t.window, total / t.windows
    unit = "per iteration" if t.marked else "per rank"
    message = f"{share:.1%} of the time ({ms(mean)} {unit}) {text}"
    return LostTime(diagnostic(code, message, remedy=remedy), share, mean)


def _idle(s: MatchedTraces, t: _Totals) -> LostTime:
    who = "the GPU" if all(trace.device == "gpu" for trace in s.traces) else "the processor"
    return _lost(
        "idle", t.idle, t, f"{who} has nothing to do: the host launches too late, loads data or synchronises"
    )  # fmt: skip


def _memory(t: _Totals) -> LostTime:
    return _lost("exposed_memory", t.memory, t, "only copies or fills run")


def _wait(s: MatchedTraces, t: _Totals) -> LostTime:
    text = "goes to waiting inside collectives for the last rank to arrive"
    remedies = [KINDS["exposed_wait"].remedy or ""]
    late = [x for x in s.stragglers if x.late]
    if late:
        worst = late[0]
        text += (
            f"; rank {worst.rank} is last in {worst.late} of {worst.collectives} (the first after the start not "
            f"counted) and costs the others {ms(worst.cost_ns)} in sum"
        )
        excess = _excess(s, worst.rank)
        if excess is not None and excess > _EVEN:
            text += f"; it computes {excess:.0%} longer than the mean of the ranks"
            remedies.insert(0, "balance the work (batch or sequence lengths, experts, pipeline stages)")
        elif excess is not None:
            text += f"; it computes no longer than the others ({excess:+.1%}), so look for the delay elsewhere"
    if t.first > 0.3 * t.wait:
        text += (
            f"; {t.first / t.wait:.0%} of it is in the first collective after the profiler started, which is "
            "mostly start-up skew"
        )
        remedies.insert(0, "profile more steps and skip the first")
    return _lost("exposed_wait", t.wait, t, text, "; ".join(remedies))


def _excess(s: MatchedTraces, rank: int) -> float | None:
    """Returns a rank's compute over the mean of all ranks, less 1, over the iterations that the imbalance
    compares."""
    means = {i.iteration: i.mean_ns for i in s.imbalance}
    own = [i for i in s.breakdown.iterations if i.rank == rank and i.name in means]
    mean = sum(means[i.name] for i in own)
    return sum(i.parts.compute_ns for i in own) / mean - 1 if mean else None


def _transfer(s: MatchedTraces, t: _Totals, total: float, what: str) -> LostTime:
    text = f"goes to {what} while nothing computes"
    if t.comm:
        text += f"; compute hides {t.overlapped / t.comm:.0%} of all communication"
    if s.exposed:
        top = s.exposed[0]
        text += f"; the most costly is {top.op} number {top.ordinal + 1} in group {top.group}"
        if top.position is not None:
            text += f", {max(0.0, top.position):.0%} into the iteration"
        if top.share is not None:
            text += f" ({top.share:.1%} of the time)"
    remedies = []
    if t.comm and t.overlapped < 0.5 * t.comm:
        remedies.append("start collectives earlier so that compute hides them (gradient buckets, prefetching)")
    known = [r for r in s.collective_rows if r.bytes is not None]
    calls, size = sum(r.count for r in known), sum(r.bytes or 0 for r in known)
    if calls and size / calls < _SMALL_BYTES:
        remedies.append(f"send fewer, larger messages (the mean is {size / calls / 1024:.0f} KiB)")
    remedies.append("send less (accumulate gradients over more micro-batches, lower precision)")
    remedies.append("check that the transport is the one you pay for")
    return _lost(
        "exposed_transfer" if what == "moving data" else "exposed_comm", total, t, text, "; ".join(remedies)
    )


def _unmatched(t: _Totals, total: float) -> LostTime:
    return _lost(
        "exposed_unmatched", total, t,
        "goes to communication while nothing computes that is not matched over the ranks, so waiting can't be "
        "told from moving data",
    )  # fmt: skip
