"""Errors that a user can cause, and nothing else: each is one clear line and ends a command with exit code 2."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

MOST_CHARACTERS = 80


class WirecostError(Exception):
    """Something the user can mend. The message says what is wrong, where, and what would be right."""

    exit_code = 2


class SpecError(WirecostError):
    """A study, workload, plan, cluster or network that can't be what was meant."""


class UnsupportedError(WirecostError):
    """This machine, kernel or installation can't do what was asked; the message says what to do about it."""


class MissingExtraError(UnsupportedError):
    """A command needs an optional dependency that isn't installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra; install it with: pip install 'wirecost[{extra}]'")


class DeprecatedWarning(FutureWarning):
    """Something that was renamed is still accepted under its former name."""


def deprecated(former: str, now: str) -> None:
    """Warns that `former` is called `now`."""
    warnings.warn(f"{former} is deprecated: write {now}", DeprecatedWarning, stacklevel=3)


def one_of(kind: str, given: object, allowed: Iterable[str]) -> str:
    """One line that refuses `given`, lists what is allowed and points at the nearest allowed name."""
    names = sorted(allowed)
    text = shorten(given, quoted=False)
    near = difflib.get_close_matches(text, names, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"unknown {kind} '{text}'{hint}; allowed: {', '.join(names)}"


def shorten(value: object, *, quoted: bool = True) -> str:
    """Returns a value from outside for an error, at most `MOST_CHARACTERS` of it."""
    if isinstance(value, int) and abs(value) >= 10**MOST_CHARACTERS:
        return "a number of very many digits"  # Python refuses to write more than 4300
    text = repr(value) if quoted else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
