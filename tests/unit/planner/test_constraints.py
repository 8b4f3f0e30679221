from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import SpecError
from wirecost.planner.constraints import COUNTS, WORDS, parse_constraint, parse_constraints
from wirecost.planner.limits import Limits, check_limits, parse_dollars, parse_long_time_s, parse_tokens


@given(
    st.sampled_from(COUNTS), st.sampled_from(["<=", ">=", "<", ">", "=", "==", "!="]), st.integers(0, 10**6),
    st.integers(0, 10**6),
)  # fmt: skip
def test_a_constraint_on_a_count_is_the_comparison_that_it_says(
    key: str, sign: str, limit: int, value: int
) -> None:
    expected = eval(f"{value} {'==' if sign == '=' else sign} {limit}")
    assert parse_constraint(f" {key} {sign} {limit} ").holds(value) == expected


@pytest.mark.parametrize(("key", "word"), [(key, word) for key, words in WORDS.items() for word in words])
def test_words_are_compared_as_such(key: str, word: str) -> None:
    constraint = parse_constraint(f"{key}={word}")
    assert constraint.holds(WORDS[key][word])
    assert not parse_constraint(f"{key}!={word}").holds(WORDS[key][word])


def test_longer_names_and_several_in_one_text_are_accepted() -> None:
    parsed = parse_constraints(["tensor-parallel<=8,mbs=1", "memory<70 GiB", "time<=2 s"])
    assert [(c.key, c.value) for c in parsed] == [("tp", 8), ("mb", 1), ("memory", 70 * 2**30), ("time", 2.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "write a quantity, a sign and a value, as in tp<=8"),
        ("tp<=eight", "tp is a whole number"),
        ("tq<=8", "unknown quantity 'tq'"),
        ("recompute<=full", "compared with = or !="),
        ("recompute=some", "unknown value of recompute 'some'"),
        ("memory<=70", None),
        ("memory<=70 parsecs", "needs a unit"),
        ("time<=fast", "written like"),
        ("tp<=99999999999", "whole number"),
        ("tp<=8; import os", "whole number"),
        ("x" * 10_000, "write a quantity"),
    ],
)
def test_what_is_no_constraint_is_refused_in_one_line(text: str, message: str | None) -> None:
    if message is None:
        assert parse_constraint(text).value == 70
        return
    with pytest.raises(SpecError, match=message) as raised:
        parse_constraint(text)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@given(st.text(max_size=300))
def test_no_text_crashes_the_parser(text: str) -> None:
    said = [
        refusal_of(parse, text) for parse in (parse_constraint, parse_tokens, parse_long_time_s, parse_dollars)
    ]
    assert not any("\n" in line for line in said)


def refusal_of(parse: Callable[[str], object], text: str) -> str:
    """Returns how a parser refuses a text; an empty text if it accepts it."""
    try:
        parse(text)
    except SpecError as error:
        return str(error)
    return ""


def test_many_constraints_are_refused() -> None:
    with pytest.raises(SpecError, match="at most 100"):
        parse_constraints(["tp<=8," * 101])


def test_tokens_times_and_sums_have_their_units() -> None:
    assert parse_tokens("1.5T") == 1.5e12
    assert parse_tokens("300B") == 3e11
    assert parse_long_time_s("30 days") == 30 * 86400
    assert parse_long_time_s("2 h") == 7200
    assert parse_dollars("$250k") == 250_000


@pytest.mark.parametrize("text", ["0", "-5", "1e99", "many", "3 parsecs", ""])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    for parse in (parse_tokens, parse_long_time_s, parse_dollars):
        with pytest.raises(SpecError):
            parse(text)


def test_the_longest_iteration_meets_deadline_and_budget() -> None:
    limits = Limits(tokens=1e12, deadline_s=1e6, budget_dollars=1e6, price=2.0)
    # 1e6 iterations of 1e6 tokens: 1 s each by the deadline; by the budget 5e5 GPU hours on 1000 GPUs are 500 h.
    assert limits.longest_iteration_s(1e6, 1000) == pytest.approx(1.0)
    assert limits.longest_iteration_s(1e6, 10_000) == pytest.approx(0.18)
    assert limits.run_dollars(0.18, 1e6, 10_000) == pytest.approx(1e6)


@pytest.mark.parametrize("limits", [Limits(deadline_s=1.0), Limits(budget_dollars=1.0), Limits(1e9, None, 5.0)])
def test_limits_that_say_nothing_are_refused(limits: Limits) -> None:
    with pytest.raises(SpecError):
        check_limits(limits)
