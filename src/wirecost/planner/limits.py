"""What a training run must meet: a deadline and a budget, for a number of tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wirecost.errors import SpecError, shorten

_DAY_S = 86400.0
_LONG_TIMES = {"day": _DAY_S, "days": _DAY_S, "d": _DAY_S, "week": 7 * _DAY_S, "weeks": 7 * _DAY_S}
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_QUANTITY = re.compile(r"^\s*([0-9]{1,18}(?:\.[0-9]{1,9})?(?:[eE][0-9]{1,2})?)\s*([A-Za-z]{0,6})\s*$")


@dataclass(frozen=True)
class Limits:
    """A training run and its limits.

    Attributes:
        tokens: tokens on which the model is trained. None if nobody said.
        deadline_s: longest time of the run in seconds. None is any.
        budget_dollars: largest price of the run. None is any.
        price: price of one GPU for an hour in US dollars. None is unknown.
    """

    tokens: float | None = None
    deadline_s: float | None = None
    budget_dollars: float | None = None
    price: float | None = None

    def run_s(self, total_s: float, tokens_of_iteration: float) -> float | None:
        """Returns the time in seconds of the run with iterations of `total_s`. None without tokens."""
        return None if self.tokens is None else self.tokens / tokens_of_iteration * total_s

    def run_dollars(self, total_s: float, tokens_of_iteration: float, gpus: int) -> float | None:
        """Returns the price of the run. None if the tokens or the price are unknown."""
        run_s = self.run_s(total_s, tokens_of_iteration)
        return None if run_s is None or self.price is None else run_s / 3600 * gpus * self.price

    def longest_iteration_s(self, tokens_of_iteration: float, gpus: int) -> float:
        """Returns the longest iteration in seconds that meets both limits; infinite without any."""
        if self.tokens is None:
            return float("inf")
        iterations = self.tokens / tokens_of_iteration
        bounds = [float("inf")]
        if self.deadline_s is not None:
            bounds.append(self.deadline_s / iterations)
        if self.budget_dollars is not None and self.price:
            bounds.append(self.budget_dollars / self.price * 3600 / gpus / iterations)
        return min(bounds)


def check_limits(limits: Limits) -> None:
    """Checks that the limits can be applied.

    Raises:
        SpecError: if a deadline or a budget has no tokens, or a budget no price.
    """
    if limits.tokens is None and (limits.deadline_s is not None or limits.budget_dollars is not None):
        raise SpecError("a deadline or a budget needs the tokens of the run, as in --tokens 2T")
    if limits.budget_dollars is not None and not limits.price:
        raise SpecError("a budget needs the price of a GPU for an hour, as in --price 2.50")


def parse_tokens(text: str) -> float:
    """Returns the number of tokens of '300B' or '1.5T'.

    Raises:
        SpecError: for another form, or a number that isn't positive.
    """
    number, unit = _parsed(text, "tokens", "300B")
    if unit.lower() not in _COUNTS:
        raise SpecError(f"tokens: {shorten(text)} is no number of tokens; write it as 300B or 1.5T")
    return _positive(number * _COUNTS[unit.lower()], "tokens", text)


def parse_long_time_s(text: str) -> float:
    """Returns the seconds of '30 days', '2 weeks' or '12 h'.

    Raises:
        SpecError: for another form, or a time that isn't positive.
    """
    from wirecost.units import parse_time_s

    number, unit = _parsed(text, "deadline", "30 days")
    if unit.lower() in _LONG_TIMES:
        return _positive(number * _LONG_TIMES[unit.lower()], "deadline", text)
    try:
        return _positive(parse_time_s(text), "deadline", text)
    except ValueError as error:
        raise SpecError(f"deadline: {error}; or as 30 days") from error


def parse_dollars(text: str, name: str = "budget") -> float:
    """Returns the dollars of '250000', '$250k' or '1.2M'.

    Raises:
        SpecError: for another form, or a sum that isn't positive.
    """
    number, unit = _parsed(str(text).strip().removeprefix("$"), name, "250k")
    if unit.lower() not in ("", "k", "m"):
        raise SpecError(f"{name}: {shorten(text)} is no sum in dollars; write it as 250000 or 250k")
    return _positive(number * _COUNTS[unit.lower()], name, text)


def _parsed(text: object, name: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.match(str(text)[:60])
    if not match or len(str(text)) > 60:
        raise SpecError(f"{name}: {shorten(text)}: write it as {example}")
    return float(match[1]), match[2]


def _positive(value: float, name: str, text: object) -> float:
    if not 0 < value < 1e30:
        raise SpecError(f"{name}: {shorten(text)} must be positive")
    return value
