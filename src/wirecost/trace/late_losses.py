"""Losses by ranks that come late to collectives because of their host, device, work or copies, or in turns."""

from __future__ import annotations

from wirecost.trace.hosts import DEVICE_KINDS, host_words
from wirecost.trace.kernel_evidence import MORE, SLOWER, Longer, longer, short_name, slowdown_ns
from wirecost.trace.lateness import named
from wirecost.trace.loads import RankLoad
from wirecost.trace.loss import Evidence, Loss, mean, typical
from wirecost.trace.places import costliest_wait

# Extra work of late ranks explains the waits if it is at least this share of the gain.
_EXPLAINS = 0.3

Words = tuple[str, str, str, str]  # code, brief, text, remedy


def late(e: Evidence) -> Loss | None:
    """Returns the loss by ranks that come late by themselves, and what takes them longer than the other ranks."""
    others = [load for load in e.loads if load.rank not in e.late.ranks]
    if not e.late.ranks or not e.late_loads() or not others:
        return None
    gain = min(e.late.gain_ns, max(load.steady_wait_ns + _hidden_behind(e, load) for load in others))
    more = {
        name: mean(getattr(load, name) for load in e.late_loads())
        - typical(getattr(load, name) for load in others)
        for name in ("idle_ns", "compute_ns", "memory_ns")
    }
    kind = max(more, key=lambda name: more[name])
    if more[kind] < _EXPLAINS * gain:
        code, brief, text, remedy = _unknown(e)
    elif kind == "idle_ns":
        code, brief, text, remedy = _host(e)
    elif kind == "compute_ns":
        code, brief, text, remedy = _compute(e, more[kind])
    else:
        code, brief, text, remedy = _copies(e)
    return e.loss(
        code, gain, text, f"if {named(e.late.ranks)} came to the collectives no later than the others", remedy,
        brief=f"{brief}; {_waiting_briefly(e)}", ranks=e.late.ranks, place=costliest_wait(e.traces, e.late.ranks),
    )  # fmt: skip


def _hidden_behind(e: Evidence, load: RankLoad) -> float:
    """Returns what a waiting rank could gain beyond its exposed wait if its wait overlaps compute.

    The gain is the time that its kernels lose to the collective that spins at the same time, measured against the
    late rank's kernels, and the part of the transfer that comes too late to be hidden.
    """
    if not load.steady_wait_ns or not load.overlapped_ns:
        return 0.0
    by_rank = {t.rank: t for t in e.traces.traces}
    slowed = slowdown_ns(by_rank[load.rank], by_rank[e.late.ranks[0]])
    return min(slowed + load.transfer_ns, load.overlapped_ns)


def turns(e: Evidence) -> Loss | None:
    """Returns the loss by waiting that no rank in particular causes."""
    if e.late.ranks or not any(e.late.own_ns.values()):
        return None
    waited = mean(load.steady_wait_ns for load in e.loads)
    return e.loss(
        "turns", waited,
        f"The ranks take turns at being late and wait for each other {e.share(waited)} {e.unit}; no rank stands "
        "out",
        "if all ranks came to the collectives together",
        "look for what varies from step to step: input lengths, garbage collection (gc.freeze, gc.disable), data "
        "loading, other processes on the hosts; synchronise less often",
        brief=f"The ranks take turns at being late: waits are {e.share(waited)} {e.unit}",
        place=costliest_wait(e.traces),
    )  # fmt: skip


def _of(e: Evidence, thing: str) -> str:
    """Returns `Rank 1's GPU` or `The GPUs of ranks 2 and 3`."""
    if len(e.late.ranks) == 1:
        return f"Rank {e.late.ranks[0]}'s {thing}"
    return f"The {thing}s of {named(e.late.ranks)}"


def _verb(e: Evidence, verb: str) -> str:
    return verb + "s" if len(e.late.ranks) == 1 else verb


def _waiting(e: Evidence) -> str:
    """Returns `rank 0 waits for it, 66%` or `the other 7 ranks wait for it, 20% of an iteration on average`."""
    others = [load for load in e.loads if load.rank not in e.late.ranks]
    waited = mean(load.steady_wait_ns for load in others)
    it = "it" if len(e.late.ranks) == 1 else "them"
    if len(others) == 1:
        return f"rank {others[0].rank} waits for {it}, {e.share(waited)} {e.unit}"
    return f"the other {len(others)} ranks wait for {it}, {e.share(waited)} {e.unit} on average"


def _waiting_briefly(e: Evidence) -> str:
    """Returns `rank 0 waits for it, 66%` or `the others wait for it, 20%`."""
    others = [load for load in e.loads if load.rank not in e.late.ranks]
    share = e.share(mean(load.steady_wait_ns for load in others))
    it = "it" if len(e.late.ranks) == 1 else "them"
    return f"rank {others[0].rank} waits for {it}, {share}" if len(others) == 1 else f"the others wait, {share}"


def _host(e: Evidence) -> Words:
    idle = mean(load.idle_ns for load in e.late_loads())
    single = len(e.late.ranks) == 1
    kind, doing, remedy = host_words(e.idle_use(e.late_loads()))
    if e.processor != "GPU":
        who = named(e.late.ranks)
        brief = f"{who[0].upper() + who[1:]} {'is' if single else 'are'} idle {e.share(idle)}"
        look = f"look at what {who} waits for: other processes, data loading (py-spy dump)"
        return "late_" + kind, brief, f"{brief} {e.unit}; {_waiting(e)}", look
    if kind in DEVICE_KINDS:
        verb = "is" if single else "are"
        brief = f"{_of(e, e.processor)} {verb} idle {e.share(idle)}"
        return "late_" + kind, brief, f"{brief} {e.unit}{doing}; {_waiting(e)}", remedy
    whose = "its" if single else "their"
    brief = f"{_of(e, 'host')} can't feed {whose} {e.processor}{'' if single else 's'}, {e.share(idle)} idle"
    text = f"{brief}{doing}; {_waiting(e)}"
    where = "its host" if single else "their hosts"
    look = (
        f"on {named(e.late.ranks)}: {remedy}; compare {where} with the others' (CPU affinity and frequency, other "
    )
    return "late_" + kind, brief, text, look + "processes, py-spy dump)"


def _compute(e: Evidence, more_ns: float) -> Words:
    reason = _longer(e)
    ranks = named(e.late.ranks)
    lead = f"{_of(e, e.processor)} {_verb(e, 'compute')} {e.share(more_ns)} {e.unit} longer than the others'"
    more = e.share(more_ns)
    if reason is not None and reason.kind == MORE:
        calls = f"{reason.calls:.0f} more" if reason.calls >= 1.5 else "more"
        return (
            "late_work",
            f"{_of(e, e.processor)} {'has' if len(e.late.ranks) == 1 else 'have'} more work, {more}",
            f"{lead}: more work ({calls} {short_name(reason.name)} an iteration); {_waiting(e)}",
            "balance the work (batch, sequence lengths, experts, stages); "
            f"see what {ranks} computes that the others don't: --table kernels",
        )
    if reason is not None and reason.kind == SLOWER:
        return (
            "late_gpu",
            f"{_of(e, e.processor)} {'is' if len(e.late.ranks) == 1 else 'are'} slower, {more}",
            f"{lead}: the same kernels take {reason.ratio - 1:.0%} longer; {_waiting(e)}",
            f"compare clocks, power, temperature and other jobs on {ranks} (nvidia-smi -q -d "
            "CLOCK,POWER,TEMPERATURE,PERFORMANCE); where they are the same, compare the sizes of the inputs",
        )
    if e.processor != "GPU":
        return (
            "late_compute",
            f"{_of(e, e.processor)} {_verb(e, 'compute')} longer, {more}",
            f"{lead}; {_waiting(e)}",
            f"compare the sizes of the inputs, other processes and the clock rate on {ranks} with the others'",
        )
    some = f", most of it in {short_name(reason.name)}" if reason is not None else ""
    return (
        "late_compute",
        f"{_of(e, e.processor)} {_verb(e, 'compute')} longer, {more}",
        f"{lead}{some}; {_waiting(e)}",
        "balance the work (batch, sequence lengths, experts, stages); where the work is the same, "
        f"compare clocks, power and temperature on {ranks} (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE)",
    )


def _longer(e: Evidence) -> Longer | None:
    """Returns the reason for the latest rank, against the rank with the typical computing time."""
    if e.processor != "GPU":
        return None  # operators of the CPU go by one name
    by_rank = {t.rank: t for t in e.traces.traces}
    slowest = max(e.late_loads(), key=lambda load: load.compute_ns)
    others = sorted(e.other_loads(), key=lambda load: load.compute_ns)
    return longer(by_rank[slowest.rank], by_rank[others[(len(others) - 1) // 2].rank])


def _copies(e: Evidence) -> Words:
    copied = mean(load.memory_ns for load in e.late_loads())
    who = named(e.late.ranks)
    brief = f"{who[0].upper() + who[1:]} {'copies' if len(e.late.ranks) == 1 else 'copy'} {e.share(copied)}"
    return (
        "late_copies",
        brief,
        f"{brief} {e.unit} while nothing computes; {_waiting(e)}",
        "pin host memory and copy with non_blocking=True on a stream of its own; compare what the ranks copy",
    )


def _unknown(e: Evidence) -> Words:
    who = named(e.late.ranks)
    brief = f"{who[0].upper() + who[1:]} {_verb(e, 'come')} late to collectives"
    return (
        "late_unknown",
        brief,
        f"{brief}, but {_verb(e, 'compute')}, "
        f"{'copies' if len(e.late.ranks) == 1 else 'copy'} and {_verb(e, 'idle')} no longer than the others; "
        f"{_waiting(e)}",
        f"look at what {who} does before the collective (--html, --perfetto): streams that wait for each other, "
        "another group's communication",
    )
