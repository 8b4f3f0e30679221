"""What the time goes to, in plain words: the largest loss first, and what to try against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wirecost.trace.compare_ranks import complete
from wirecost.trace.problems import MESSAGES

if TYPE_CHECKING:
    from wirecost.trace.result import TraceSet

# Below this mean size a ring is bound by latency rather than by bandwidth on current networks (NCCL switches
# from its low-latency protocols to Simple around here).
_SMALL_BYTES = 1 << 20
_WORTH = 0.02  # a loss below two percent of the window isn't worth a sentence
_EVEN = 0.05  # compute within five percent over the ranks counts as even


# Diagnostics that change how the numbers are read.
_TOLD = {
    "looks_like_communication": "WARNING",
    "several_devices": "WARNING",
    "unmatched_collectives": "WARNING",
    "clocks_not_aligned": "Note",
    "clock_offsets": "Note",
    "rank_unknown": "Note",
}


class Finding(msgspec.Struct):
    """One loss: its share of all windows, its mean time per iteration and rank, what it is and what to try."""

    code: str
    share: float
    mean_ns: float
    text: str
    advice: str


class _Totals:
    """Sums over the complete iterations of all ranks (the whole windows of ranks without iterations)."""

    def __init__(self, s: TraceSet) -> None:
        self.windows = 0
        self.marked = any(t.iterations for t in s.traces)
        self.window = self.compute = self.comm = self.overlapped = self.exposed = self.memory = self.idle = 0
        self.wait = self.transfer = self.first = 0.0
        for trace, waits, kept in zip(s.traces, s.waits, complete(s.traces), strict=True):
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


def findings(s: TraceSet) -> list[Finding]:
    """Returns every loss worth a sentence, largest share first; waiting apart from moving data where wait is
    known."""
    t = _Totals(s)
    if not t.windows or not t.window:
        return []
    found = [_idle(s, t), _memory(t)]
    known = t.wait + t.transfer
    if known > 0.5 * t.exposed:
        found += [_wait(s, t), _transfer(s, t, t.transfer, "moving data"), _unmatched(t, t.exposed - known)]
    else:
        found.append(_transfer(s, t, float(t.exposed), "communicating"))
    worth = [f for f in found if f.share >= _WORTH]
    return sorted(worth, key=lambda f: -f.share)


def _finding(code: str, total: float, t: _Totals, text: str, advice: str) -> Finding:
    share, mean = total / t.window, total / t.windows
    unit = "per iteration" if t.marked else "per rank"
    return Finding(code, share, mean, f"{share:.1%} of the time ({ms(mean)} {unit}) {text}", advice)


def _idle(s: TraceSet, t: _Totals) -> Finding:
    who = "the GPU" if all(trace.device == "gpu" for trace in s.traces) else "the processor"
    return _finding(
        "idle", t.idle, t, f"{who} has nothing to do: the host launches too late, loads data or synchronises",
        "raise the micro-batch, capture CUDA graphs or use torch.compile, give the data loader more workers, and "
        "look for .item(), .cpu() and synchronize() in the step",
    )  # fmt: skip


def _memory(t: _Totals) -> Finding:
    return _finding(
        "exposed_memory", t.memory, t, "only copies or fills run",
        "pin host memory and copy with non_blocking=True on a stream of its own; keep what is copied every step "
        "on the device",
    )  # fmt: skip


def _wait(s: TraceSet, t: _Totals) -> Finding:
    text = "goes to waiting inside collectives for the last rank to arrive"
    advice = (
        "compare what the late ranks do before these collectives: input sizes, data loading, host load, clocks"
    )
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
            advice = "balance the work (batch or sequence lengths, experts, pipeline stages); " + advice
        elif excess is not None:
            text += f"; it computes no longer than the others ({excess:+.1%}), so look for the delay elsewhere"
    if t.first > 0.3 * t.wait:
        text += (
            f"; {t.first / t.wait:.0%} of it is in the first collective after the profiler started, which is "
            "mostly start-up skew"
        )
        advice = "profile more steps and skip the first; " + advice
    return _finding("exposed_wait", t.wait, t, text, advice)


def _excess(s: TraceSet, rank: int) -> float | None:
    """Returns a rank's compute over the mean of all ranks, less 1, over the iterations that the imbalance
    compares."""
    means = {i.iteration: i.mean_ns for i in s.imbalance}
    own = [i for i in s.breakdown.iterations if i.rank == rank and i.name in means]
    mean = sum(means[i.name] for i in own)
    return sum(i.parts.compute_ns for i in own) / mean - 1 if mean else None


def _transfer(s: TraceSet, t: _Totals, total: float, what: str) -> Finding:
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
    advice = []
    if t.comm and t.overlapped < 0.5 * t.comm:
        advice.append("start collectives earlier so that compute hides them (gradient buckets, prefetching)")
    known = [r for r in s.collective_rows if r.bytes is not None]
    calls, size = sum(r.count for r in known), sum(r.bytes or 0 for r in known)
    if calls and size / calls < _SMALL_BYTES:
        advice.append(f"send fewer, larger messages (the mean is {size / calls / 1024:.0f} KiB)")
    advice.append("send less (accumulate gradients over more micro-batches, lower precision)")
    advice.append("check that the transport is the one you pay for")
    return _finding(
        "exposed_transfer" if what == "moving data" else "exposed_comm", total, t, text, "; ".join(advice)
    )


def _unmatched(t: _Totals, total: float) -> Finding:
    return _finding(
        "exposed_unmatched", total, t,
        "goes to communication while nothing computes that is not matched over the ranks, so waiting can't be "
        "told from moving data",
        "read the traces of all ranks of these groups, recorded over the same steps",
    )  # fmt: skip


def sentences(s: TraceSet) -> list[str]:
    """Returns the whole summary, one sentence an item: the answer, losses with advice, what the numbers may
    lack."""
    lines = [f"{label}: {text}." for label, text in s.answer.lines]
    for number, f in enumerate(s.findings):
        lead = "Largest loss: " if number == 0 else "Also: "
        lines.append(f"{lead}{f.text}. Try: {f.advice}.")
    return lines + warnings(s)


def warnings(s: TraceSet) -> list[str]:
    """Returns what makes the numbers less than they seem: communication that isn't seen, scraps of steps, lost
    data."""
    lines = []
    silent = [trace for trace in s.traces if any(p.code == "no_communication" for p in trace.problems)]
    if silent:
        lines.append(
            f"WARNING: {len(silent)} of {len(s.traces)} ranks show no communication although the world is larger "
            "than one: either it was not recorded, or its kernels have names that need --comm-pattern."
        )
    bare = sum(p.count for trace in s.traces for p in trace.problems if p.code == "bare_gpu_step")
    if bare:
        lines.append(
            f"WARNING: the GPU annotations of {bare} steps cover only scraps of them, so these iterations say "
            "little; take the CPU steps with --window cpu."
        )
    lost = {p.code for trace in s.traces for p in trace.problems if p.loss} | {
        p.code for p in s.set_problems if p.loss
    }
    lost -= {"no_communication"}
    if lost:
        count = sum(p.count for trace in s.traces for p in trace.problems if p.loss and p.code in lost)
        lines.append(
            f"WARNING: data is missing from these numbers ({', '.join(sorted(lost & set(MESSAGES)))}; "
            f"{count} times): see --table diagnostics."
        )
    return lines + _told(s)


def _told(s: TraceSet) -> list[str]:
    """Returns diagnostics that change how the numbers are read, each once."""
    lines = []
    every = [p for t in s.traces for p in t.problems] + s.set_problems
    for code, lead in _TOLD.items():
        listed = [p for p in every if p.code == code]
        if listed:
            lines.append(f"{lead}: {listed[0].message}.")
    return lines
