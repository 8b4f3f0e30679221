"""Errors that a user can correct. Each message is one line, and the command ends with exit code 2."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

MAX_CHARACTERS = 80


class WirecostError(Exception):
    """An error that the user can correct. The message says what is wrong, where, and what would be right."""

    exit_code = 2


class SpecError(WirecostError):
    """A study, workload, plan, cluster or network is invalid."""


class UnsupportedError(WirecostError):
    """This machine, kernel or installation can't do what was requested. The message says what to do about it."""


class MissingExtraError(UnsupportedError):
    """A command needs an optional dependency that isn't installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the '{extra}' extra; install it from a checkout of wirecost: pip install '.[{extra}]'"
        )


class DeprecatedWarning(FutureWarning):
    """A name was used that is deprecated and still accepted."""


def deprecated(former: str, now: str) -> None:
    """Warns that `former` is deprecated and that `now` replaces it."""
    warnings.warn(f"{former} is deprecated: write {now}", DeprecatedWarning, stacklevel=3)


def one_of(kind: str, value: object, allowed: Iterable[str]) -> str:
    """Returns a one-line message that `value` is unknown, with the allowed names and the nearest of them.

    Args:
        kind: what the names stand for, as in "unknown plan 'dpp'".
    """
    names = sorted(allowed)
    text = shorten(value, quoted=False)
    near = difflib.get_close_matches(text, names, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"unknown {kind} '{text}'{hint}; allowed: {', '.join(names)}"


def shorten(value: object, *, quoted: bool = True) -> str:
    """Returns a value from outside for a message, cut after `MAX_CHARACTERS` characters."""
    if isinstance(value, int) and abs(value) >= 10**MAX_CHARACTERS:
        return "a number of very many digits"  # Python refuses to convert more than 4300 digits to text
    text = repr(value) if quoted else str(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
