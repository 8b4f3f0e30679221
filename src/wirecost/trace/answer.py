"""The answer in five lines: the iteration, the communication, the cause, the possible gain and the next step."""

from __future__ import annotations

import re
import statistics

import msgspec

from wirecost.trace.diagnosis import WORTH, Loss, the_cause
from wirecost.trace.loads import RankLoad, exposed_share, loads
from wirecost.trace.matched_traces import MatchedTraces
from wirecost.trace.places import Place

NOTHING, NO_EVENTS, UNSEEN = "nothing", "no_device_events", "no_communication"


class Answer(msgspec.Struct):
    """Five sentences and the facts behind them. `brief` holds forms of them that fit a line.

    `code` names the cause; it is `nothing` if no loss is worth a change. `ranks` are the ranks responsible, empty
    if all are. The gain is an upper bound per iteration.
    """

    iteration: str
    communication: str
    cause: str
    gain: str
    next: str
    code: str
    ranks: list[int]
    iteration_ns: float | None
    gain_ns: float | None
    gain_share: float | None
    place: Place | None = None
    brief: list[str] = []

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Returns (label, sentence) in the order in which they are read."""
        sentences = [self.iteration, self.communication, self.cause, self.gain, self.next]
        return list(zip(self._labels, sentences, strict=True))

    @property
    def brief_lines(self) -> list[tuple[str, str]]:
        """Returns (label, sentence) in the forms that fit a line of 80 columns as far as names and ranks allow."""
        return list(zip(self._labels, self.brief, strict=True))

    @property
    def _labels(self) -> list[str]:
        return [label_of_iteration(self), "Communication", "Cause", "To be won", "Next"]


def label_of_iteration(answer: Answer) -> str:
    return "Recorded" if answer.iteration.startswith("no iterations") else "Iteration"


def ms(ns: float) -> str:
    """Returns a time for people: `0.139 ms`, `23.45 ms`, `281.6 ms`, `12.35 s`."""
    if ns >= 2e9:
        return f"{ns / 1e9:,.2f} s"
    return f"{ns / 1e6:.1f} ms" if ns >= 1e8 else f"{ns / 1e6:.2f} ms" if ns >= 1e7 else f"{ns / 1e6:.3f} ms"


_BRIEF = 64  # columns of a line without its label and full stop


def clipped(sentence: str) -> str:
    """Returns as many hints of a list as fit a line.

    Only complete clauses are taken, the first in any case. Remarks in parentheses are dropped if needed.
    """
    short = ""
    for clause in re.split(r"; (?![^()]*\))", sentence):
        longer = f"{short}; {clause}" if short else clause
        if len(longer) > _BRIEF and short:
            break
        short = longer
    if len(short) > _BRIEF:
        short = re.sub(r" \([^()]*\)", "", short)
    if len(short) > _BRIEF:
        short = re.split(r": |, and |, or ", short)[0]
    return short


def answer(s: MatchedTraces, losses: list[Loss]) -> Answer:
    """Returns the answer of a set of traces with its losses. It may state that the traces allow no conclusion."""
    result = _answer(s, losses)
    briefly = {
        "iteration": result.iteration,
        "communication": result.communication.replace(" of the time is ", " of time ")
        .replace("wait and transfer not told apart", "waits unknown")
        .replace("; compute hides ", "; ")
        .replace(" of all communication", " hidden"),
    } | _briefly(losses, result)
    result.brief = [briefly[name] for name in ("iteration", "communication", "cause", "gain", "next")]
    return result


def _briefly(losses: list[Loss], result: Answer) -> dict[str, str]:
    """Returns the sentences of an answer in forms that fit a line."""
    cause = the_cause(losses) if result.code not in (NO_EVENTS, UNSEEN) else None
    brief = {"cause": result.cause, "gain": result.gain, "next": clipped(result.next)}
    if result.code == UNSEEN:
        brief["cause"] = "unknown: no communication was recognised, so it may count as compute"
    elif result.code == NOTHING:
        brief["gain"] = f"nothing worth a change: every loss is under {WORTH:.0%}"
    if cause is not None:
        brief["cause"] = cause.brief
        brief["gain"] = result.gain if len(result.gain) <= _BRIEF else result.gain.partition(", ")[0]
    return brief


def _answer(s: MatchedTraces, losses: list[Loss]) -> Answer:
    listed = loads(s)
    if not listed:
        return Answer(
            iteration="no iterations and no device events were recorded",
            communication="unknown", cause="unknown: the traces hold no work of a device", gain="unknown",
            next="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            code=NO_EVENTS, ranks=[], iteration_ns=None, gain_ns=None, gain_share=None,
        )  # fmt: skip
    cause = the_cause(losses)
    return Answer(
        iteration=_iteration(s, listed),
        communication=_communication(s, listed),
        iteration_ns=max(load.window_ns for load in listed),
        **_parts_of(s, listed, losses, cause),
    )


def _parts_of(s: MatchedTraces, listed: list[RankLoad], losses: list[Loss], cause: Loss | None) -> dict:
    if cause is None and _unseen(s, listed):
        return {
            "cause": f"unknown: no communication was recognised although the world has {s.world_size} ranks, so "
            "part of what counts as compute may be communication",
            "gain": "unknown",
            "next": "see what counts as what (--table kernels), and name communication with --comm-pattern REGEX",
            "code": UNSEEN, "ranks": [], "gain_ns": None, "gain_share": None,
        }  # fmt: skip
    if cause is None:
        compute = statistics.fmean(load.compute_ns / load.window_ns for load in listed if load.window_ns)
        most = max((c.gain_share for c in losses), default=0.0)
        thing = "GPU" if all(t.device == "gpu" for t in s.traces) else "processor"
        who = f"the {thing} computes" if len(listed) == 1 else f"the {thing}s compute"
        return {
            "cause": f"nothing stands out: {who} {compute:.0%} of the time",
            "gain": f"nothing worth a change: every loss is under {WORTH:.0%} (the largest {most:.1%})",
            "next": "make the computation quicker: kernels, precision, torch.compile",
            "code": NOTHING, "ranks": [], "gain_ns": None, "gain_share": most,
        }  # fmt: skip
    unit = "an iteration" if any(load.iterations for load in listed) else "the recorded window"
    return {
        "cause": cause.text,
        "gain": f"at most {ms(cause.gain_ns)} of {unit} ({cause.gain_share:.0%}), {cause.condition}",
        "next": cause.remedy,
        "code": cause.code,
        "ranks": cause.ranks,
        "gain_ns": cause.gain_ns,
        "gain_share": cause.gain_share,
        "place": cause.place,
    }


def _unseen(s: MatchedTraces, listed: list[RankLoad]) -> bool:
    return s.world_size > 1 and not any(load.comm_ns for load in listed)


def _iteration(s: MatchedTraces, listed: list[RankLoad]) -> str:
    few = f"{len(s.traces)} of {s.world_size} ranks"
    ranks = "1 rank" if s.world_size == 1 else few if len(s.traces) < s.world_size else f"{s.world_size} ranks"
    spread = s.breakdown.iteration_ns()
    if not any(load.iterations for load in listed) or spread is None:
        window = max(load.window_ns for load in listed)
        return f"no iterations marked; the recorded window is {ms(window)} ({ranks})"
    slowest = "slowest of " if len(listed) > 1 else ""
    source = "+".join(sorted({i.window.source for t in s.traces for i in t.iterations}))
    return f"{ms(spread.median)} (median of {spread.n}; {slowest}{ranks}; windows: {source})"


def _communication(s: MatchedTraces, listed: list[RankLoad]) -> str:
    window = sum(load.window_ns for load in listed)
    comm, exposed = sum(load.comm_ns for load in listed), sum(load.exposed_ns for load in listed)
    if not comm:
        return "none recognised although the world is larger than one" if s.world_size > 1 else "none"
    split = {
        "transfer": sum(load.transfer_ns for load in listed),
        "wait": sum(load.wait_ns for load in listed),
        "bubble": sum(load.bubble_ns for load in listed),
        "not told apart": sum(load.unsplit_ns for load in listed),
    }
    parts = [f"{name} {value / window:.1%}" for name, value in split.items() if value >= 0.0005 * window]
    lead = f"{exposed_share(listed):.1%} of the time is exposed"
    if split["not told apart"] >= 0.9995 * exposed:
        lead += " (wait and transfer not told apart)"
    elif parts:
        lead += f" ({', '.join(parts)})"
    return f"{lead}; compute hides {1 - exposed / comm:.0%} of all communication"
