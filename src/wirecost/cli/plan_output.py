"""Prints the answers of `wirecost plan`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wirecost.cli.job_options import assumed_line
from wirecost.cli.output import console, percent, print_diagnostics, safe, table
from wirecost.cli.show import seconds
from wirecost.spec import Recompute
from wirecost.units import format_duration_s, format_size_bytes

if TYPE_CHECKING:
    from wirecost.planner.answer import Answer, Ranked

_MOST_PARETO = 6


def show(answer: Answer, assumed: dict[str, str], format: str = "text") -> None:
    """Prints an answer: the best plans, their parts, what can be said of them, and what can't."""
    out = console(format)
    question = answer.question
    several = "s" * (question.gpus != 1)
    title = (
        f"{question.workload.name} on {question.gpus} GPU{several} of {question.cluster.name}, global batch "
        f"{question.global_batch} x {question.workload.sequence_length} tokens"
    )
    out.print(f"[bold]{safe(title)}[/bold] (predicted)", soft_wrap=True)
    for line in _head_lines(answer):
        out.print(f"  {safe(line)}", soft_wrap=True)
    if not answer.ranked:
        _show_nothing(answer, out)
        out.print(safe(assumed_line(assumed)), soft_wrap=True)
        return
    out.print()
    for each in _plans(answer):
        out.print(each)
    for line in _honest_lines(answer):
        out.print(f"  {safe(line)}", soft_wrap=True)
    out.print()
    out.print(_breakdown(answer))
    out.print(_rules(answer))
    out.print(_pareto(answer))
    for line in _limit_lines(answer):
        out.print(f"  {safe(line)}", soft_wrap=True)
    if format == "text":
        print_diagnostics(out, _diagnostics(answer))
    out.print(safe(assumed_line(assumed)), soft_wrap=True)


def _head_lines(answer: Answer) -> Iterator[str]:
    found, present = answer.found, answer.present
    if present is None:
        fit = "fit" if found.is_certain else "may fit"
        yield f"{len(found):,} of {found.legal:,} legal plans {fit} in memory and meet the constraints."
        if found.is_certain and found.uncertain_count:
            yield f"{found.uncertain_count:,} more may not fit. --may-not-fit ranks them, too."
        return
    size = format_size_bytes(float(present.prediction.memory.total), 3)
    yield (
        f"Your plan, {present.choice.label}: {seconds(present.prediction.total_s)}, {size}, "
        f"{present.prediction.fit}."
    )
    yield f"{len(found):,} plans that differ from it in at most one choice fit in memory and meet the constraints."


_CHOSEN = (
    "plan", "group", "TP", "PP", "VPP", "CP", "EP", "DP", "batch", "ZeRO", "options", "stack", "iteration", "90 %",
)  # fmt: skip
_REACHED = ("plan", "tokens/s", "MFU", "comm fraction", "memory", "fit", "worst", "$/Gtoken", "run", "$/run")


def _plans(answer: Answer) -> list[Any]:
    """Returns the table of the plans' choices and times, and that of what they reach."""
    ranked = answer.ranked
    optional = {
        "VPP": any(r.choice.vpp > 1 for r in ranked),
        "CP": any(r.choice.cp > 1 for r in ranked),
        "EP": any(r.choice.ep > 1 for r in ranked),
        "stack": len({r.stack.name for r in ranked}) > 1,
        "fit": not answer.found.is_certain,
        "$/Gtoken": bool(answer.limits.price),
        "run": answer.limits.tokens is not None,
        "$/run": answer.limits.tokens is not None and bool(answer.limits.price),
    }
    rows = [_cells(answer, number, each) for number, each in enumerate(ranked, 1)]
    tables = []
    for title, columns in (("Fastest plans", _CHOSEN), ("What they reach", _REACHED)):
        names = [name for name in columns if optional.get(name, True)]
        tables.append(table(title, names, [[row[name] for name in names] for row in rows]))
    return tables


def _cells(answer: Answer, number: int, ranked: Ranked) -> dict[str, str]:
    from wirecost.planner.document import dollars_per_billion_tokens

    c, p = ranked.choice, ranked.prediction
    interval = p.breakdown.interval
    low, high = (interval.low_ns / 1e9, interval.high_ns / 1e9) if interval else (p.total_s, p.total_s)
    dollars = dollars_per_billion_tokens(answer, p.total_s)
    return {
        "plan": str(number),
        "group": str(ranked.group),
        "TP": str(c.tp),
        "PP": str(c.pp),
        "VPP": str(c.vpp),
        "CP": str(c.cp),
        "EP": str(c.ep),
        "DP": str(c.dp),
        "batch": f"{c.mb} x {p.setup.accumulation}",
        "ZeRO": f"{c.zero}{' node' if c.node_sharding else ''}",
        "options": " ".join(_options(ranked)) or "-",
        "stack": ranked.stack.name,
        "iteration": seconds(p.total_s),
        "90 %": f"{_short(low)}-{_short(high)} s",
        "tokens/s": f"{p.tokens_per_s:,.0f}",
        "MFU": percent(p.mfu, 0),
        "comm fraction": percent(p.comm_fraction, 0),
        "memory": f"{float(p.memory.least) / 2**30:.3g}-{format_size_bytes(float(p.memory.total), 3)}",
        "fit": answer.fit(p),
        "worst": percent(ranked.regret, sign=True),
        "$/Gtoken": "-" if dollars is None else f"{dollars:,.2f}",
        "run": "-" if ranked.run_s is None else _long(ranked.run_s),
        "$/run": "-" if ranked.run_dollars is None else f"{ranked.run_dollars:,.0f}",
    }


def _long(time_s: float) -> str:
    """Returns a time as text, in days from two days on."""
    days = time_s / 86400
    return f"{days:,.1f} days" if days >= 2 else format_duration_s(time_s)


def format_count(count: float | None) -> str:
    """Returns a number of tokens as text, as 300B."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count is not None and count >= size:
            return f"{count / size:.4g}{unit}"
    return "-" if count is None else f"{count:.0f}"


def _short(value: float) -> str:
    """Returns a number with three digits or more, without an exponent where it is large."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _options(ranked: Ranked) -> Iterator[str]:
    c = ranked.choice
    if c.sp:
        yield "SP"
    if c.recompute is not Recompute.NONE:
        yield f"recompute-{c.recompute.value}"
    if c.dp * c.cp > 1 and not c.overlap:
        yield "no-overlap"
    if c.pp_first:
        yield "PP-first"
    if c.dp_last:
        yield "DP-last"
    if c.schedule is not None:
        yield c.schedule.value


def _honest_lines(answer: Answer) -> Iterator[str]:
    """Yields what the ranking doesn't say."""
    found = answer.found
    stacks = {each.stack.name for each in answer.ranked}
    if len(stacks) == 1:
        yield f"Stack of all: {stacks.pop()}. Batch: micro-batch x accumulation."
    if answer.alike > 1:
        yield (
            f"This model can't tell {answer.alike:,} plans from the fastest one, even where errors that they "
            "share cancel. Plans of one group are level."
        )
        labels = "; ".join(found.choice(place).label for place in answer.to_measure)
        yield f"Measure these, which differ most: {labels}"
    else:
        yield "The model tells the fastest plan from all others."
    simple = answer.simplest
    if simple is not None and simple != 0:
        yield f"Simplest plan of group 1: {found.choice(simple).label}, {seconds(float(found.total_s[simple]))}"
    yield from _memory_lines(answer)
    unfitted = {kind for each in answer.ranked for kind in each.unfitted or ()}
    if unfitted:
        plans = ", ".join(str(n) for n, each in enumerate(answer.ranked, 1) if each.unfitted)
        yield f"Never fitted to measurements under their stack: {', '.join(sorted(unfitted))} (plans {plans})"
    if any(each.unfitted is None for each in answer.ranked):
        yield "Of their stack nothing is recorded about which kinds of plans it was fitted to."
    changed = [case for case in answer.cases if case.regrets and case.regrets[0] > 1e-6]
    if changed:
        words = "; ".join(f"{case.name}: {case.best.label} (plan 1 {case.regrets[0]:+.1%})" for case in changed)
        yield f"Another plan is the fastest with {words}"
    else:
        yield "Plan 1 stays the fastest with bandwidth or compute 20 % lower or higher."
    yield "`worst` is how much slower a plan is than the fastest in the worst of these four cases."


def _memory_lines(answer: Answer) -> Iterator[str]:
    """Yields what is not known about the memory of plans."""
    found = answer.found
    if not found.is_certain:
        has = format_size_bytes(answer.question.usable_bytes, 3)
        yield (
            f"Plans that may not fit need more than {has} with the usual formats of their stack, and less with "
            "the smallest ones that it offers for gradients, optimizer states and logits."
        )
    for each in found.uncertain[:1]:
        if each.total_s < 0.99 * float(found.total_s[0]):
            least, most = format_size_bytes(each.least_bytes, 3), format_size_bytes(each.memory_bytes, 3)
            yield f"Faster, but may not fit ({least} to {most}): {each.choice.label}, {seconds(each.total_s)}"


def _breakdown(answer: Answer) -> Any:
    from wirecost.prediction.predict import iteration_parts

    listed = [dict(iteration_parts(each.prediction)) for each in answer.ranked]
    names = list(dict.fromkeys(name for parts in listed for name in parts))
    body = []
    for number, (parts, ranked) in enumerate(zip(listed, answer.ranked, strict=True), 1):
        total = ranked.prediction.total_s
        body.append([str(number), *(percent(parts[name] / total) if name in parts else "-" for name in names)])
    return table("Parts of the iteration", ["plan", *names], body)


def _rules(answer: Answer) -> Any:
    words = {True: "obeyed", False: "not obeyed", None: "does not apply"}
    body = []
    for rule in answer.rules:
        cost = "-" if rule.cost is None else percent(rule.cost, sign=True)
        other = rule.disobeying if rule.obeyed else rule.obeying
        label = "-" if other is None or rule.obeyed is None else other[0].label
        body.append([rule.name, words[rule.obeyed], cost, label])
    head = ["rule of thumb", "plan 1", "disobeying costs", "fastest plan of the other kind"]
    return table("Rules of thumb", head, body)


def _pareto(answer: Answer) -> Any:
    places = answer.pareto
    if len(places) > _MOST_PARETO:
        steps = [round(i * (len(places) - 1) / (_MOST_PARETO - 1)) for i in range(_MOST_PARETO)]
        places = [places[i] for i in steps]
    found = answer.found
    body = [
        [
            seconds(float(found.total_s[place])),
            format_size_bytes(float(found.memory_bytes[place]), 3),
            found.choice(place).label,
        ]
        for place in places
    ]
    title = f"Speed against memory: {len(places)} of {len(answer.pareto)} plans that no other beats in both"
    return table(title, ["iteration", "memory", "plan"], body)


def _limit_lines(answer: Answer) -> Iterator[str]:
    if answer.meets is None:
        return
    best, limits = answer.ranked[0], answer.limits
    run = _long(best.run_s) if best.run_s is not None else "unknown"
    cost = "" if best.run_dollars is None else f" and ${best.run_dollars:,.0f}"
    if answer.meets:
        yield f"Plan 1 meets the limits: {run}{cost} for {format_count(limits.tokens)} tokens."
        return
    longest = limits.longest_iteration_s(answer.tokens, answer.question.gpus)
    over = best.prediction.total_s / longest
    yield f"No plan meets the limits: plan 1 takes {run}{cost}, {over:.2f} times what is allowed."
    yield from _change_lines(answer)


def _change_lines(answer: Answer) -> Iterator[str]:
    if not answer.changes and answer.meets is False:
        yield "No other number of GPUs, doubled or halved, meets them either."
    elif not answer.changes:
        yield "None of the changes that were tried helps: more GPUs, fewer constraints, shorter sequences."
    for change in answer.changes:
        size = format_size_bytes(change.memory_bytes, 3)
        yield f"It would {change.what}: {seconds(change.total_s)}, {size}, {change.label}"


def _show_nothing(answer: Answer, out: Any) -> None:
    """Prints by how much the smallest plan doesn't fit, and what would."""
    smallest = answer.found.smallest
    if smallest is not None:
        choice, size = smallest
        usable = answer.question.usable_bytes
        if size <= usable:
            out.print(
                f"  A constraint on time or memory excludes every plan; the smallest is {safe(choice.label)}."
            )
        else:
            over = format_size_bytes(size - usable, 3)
            out.print(
                f"  The smallest plan needs at least {format_size_bytes(size, 4)} of "
                f"{format_size_bytes(usable, 4)}, "
                f"{over} too much: {safe(choice.label)}",
                soft_wrap=True,
            )
    for line in _change_lines(answer):
        out.print(f"  {safe(line)}", soft_wrap=True)


def _diagnostics(answer: Answer) -> list[Any]:
    """Returns the diagnostics of the listed plans, each once. What was never fitted is said in a line."""
    listed = [d for each in answer.ranked[:1] for d in each.prediction.breakdown.diagnostics]
    return [d for d in listed if d.code != "uncalibrated_plan"]
