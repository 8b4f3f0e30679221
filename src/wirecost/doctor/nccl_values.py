"""Checks NCCL_* variables for unknown names and invalid values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine
from wirecost.doctor.nccl_variables import (
    ALGORITHMS,
    CHOICES,
    FUNCTIONS,
    KNOWN,
    LEVELS,
    NEWEST,
    NOT_NCCLS,
    NUMBERS,
    OTHERS,
    PREFIX,
    PROTOCOLS,
    RANGES,
    REMOVED,
    SUBSYSTEMS,
)
from wirecost.doctor.settings import Settings

_ALIKE = 0.8
_MOST_EDITS = 2
_LONGEST_NAME = 80
_OPPOSITES = {"_DISABLE": "_ENABLE", "_ENABLE": "_DISABLE"}
_NUMBER = re.compile(r"[ \t]*([+-]?)(0[xX][0-9a-fA-F]+|\d+)")
_MISSPELT_PREFIX = re.compile(r"(?=[NCL]*C)(?=[NCL]*L)[NCL]{3,6}[_-]|nccl_", re.ASCII)
_MAX_DIGITS = 19
_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_FILE")
_MOST_SOCKETS = 64


def number_of(value: str) -> int | None:
    """Returns the number that NCCL's strtoll (base 0) reads: 0 for words, else the digits at the start.

    Returns None for empty text and for numbers of more than 64 bits, for which NCCL keeps its default.
    """
    if not value:
        return None
    match = _NUMBER.match(value)
    if match is None:
        return 0
    digits = match[2]
    if len(digits) > _MAX_DIGITS + 2:
        return None
    if digits[:2].lower() == "0x":
        magnitude = int(digits, 16)
    elif digits.startswith("0"):
        octal = re.match(r"0[0-7]*", digits)
        magnitude = int(octal[0] if octal is not None else "0", 8)
    else:
        magnitude = int(digits)
    number = -magnitude if match[1] == "-" else magnitude
    return number if -(2**63) <= number < 2**63 else None


def is_on(environment: Mapping[str, str], name: str) -> bool:
    """Returns whether NCCL treats a switch as set. Only 1 sets NCCL_P2P_DISABLE (src/graph/paths.cc)."""
    number = number_of(environment.get(name, ""))
    return number == 1 if name == "NCCL_P2P_DISABLE" else bool(number)


def probe(machine: Machine, settings: Settings) -> Iterator[Diagnostic]:
    """Yields diagnostics on names and values of NCCL's variables, short enough for a terminal."""
    for full in _probe(machine, settings):
        yield replace(full, message=_short(full.message), remedy=full.remedy and _short(full.remedy))


def _probe(machine: Machine, settings: Settings) -> Iterator[Diagnostic]:
    for name in sorted(settings.values):
        value = settings.values[name]
        if name in KNOWN:
            yield from _value(machine, settings, name, value)
        elif name in REMOVED:
            last, instead = REMOVED[name]
            yield diagnostic(
                "nccl_variable_removed",
                f"{settings.named(name)}: NCCL after {last} doesn't read it",
                remedy=f"see {instead}, or unset {name}",
            )
        elif name.strip() == name and not name.startswith(OTHERS) and name not in NOT_NCCLS:
            yield from _unknown_name(settings, name)
    yield from _together(settings)


def _unknown_name(settings: Settings, name: str) -> Iterator[Diagnostic]:
    """Yields a diagnostic on a name that NCCL doesn't know: a misspelt one, or one of another
    version or program.
    """
    if name.startswith(PREFIX):
        suffix = name.removeprefix(PREFIX)[:_LONGEST_NAME]
        suffixes = sorted((known.removeprefix(PREFIX) for known in KNOWN), key=lambda s: (_edits(suffix, s), s))
        message = f"{settings.named(name)}: NCCL up to {NEWEST} doesn't know {name}"
        ending = next((e for e in _OPPOSITES if suffix.endswith(e)), None)
        opposite = suffix.removesuffix(ending) + _OPPOSITES[ending] if ending is not None else ""
        if opposite in suffixes:
            yield diagnostic(
                "nccl_variable_misspelt", message, remedy=f"{PREFIX}{opposite} is the variable for it"
            )
        elif _edits(suffix, suffixes[0]) <= (_MOST_EDITS if len(suffix) > 5 else 1):
            yield diagnostic("nccl_variable_misspelt", message, remedy=f"{PREFIX}{suffixes[0]} is meant?")
        else:
            alike = difflib.get_close_matches(suffix, suffixes, 1, _ALIKE)
            like = f"; like it: {PREFIX}{alike[0]}" if alike else ""
            yield diagnostic("nccl_variable_unknown", f"{message} (another program's or a plugin's?){like}")
    elif (match := _MISSPELT_PREFIX.match(name)) is not None:
        meant = PREFIX + name[match.end() :].upper().replace("-", "_")
        if meant in KNOWN:
            yield diagnostic(
                "nccl_variable_misspelt",
                f"{settings.named(name)}: NCCL doesn't read {name}",
                remedy=f"{meant} is meant?",
            )


def _edits(a: str, b: str) -> int:
    """Returns the number of insertions, removals, replacements or swaps of letters between a and b; 3 for more
    than 2.
    """
    if abs(len(a) - len(b)) > _MOST_EDITS:
        return _MOST_EDITS + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, other in enumerate(b, 1):
            cost = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > _MOST_EDITS:
            return _MOST_EDITS + 1
    return row[-1]


def _value(machine: Machine, settings: Settings, name: str, value: str) -> Iterator[Diagnostic]:
    if not value:
        return
    shown = settings.named(name)
    if name in NUMBERS:
        yield from _number(shown, name, value)
    elif name in ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"):
        if value not in LEVELS and not value[0].isdigit():
            upper = value.strip().upper()
            remedy = f"{name}={upper}" if upper in LEVELS else f"one of: {', '.join(LEVELS)}"
            yield diagnostic(
                "nccl_value_unknown", f"{shown}: NCCL doesn't know this level and keeps its default", remedy=remedy
            )
    elif name in ("NCCL_ALGO", "NCCL_PROTO"):
        problem = _list_problem(value, ALGORITHMS if name == "NCCL_ALGO" else PROTOCOLS)
        if problem is not None:
            yield diagnostic(
                "nccl_list_invalid", f"{shown}: {problem}: NCCL refuses to start", remedy=_remedy(name)
            )
    elif name == "NCCL_DEBUG_SUBSYS":
        unknown = [part for part in value.lstrip("^").split(",") if part and part.upper() not in SUBSYSTEMS]
        if unknown:
            yield diagnostic(
                "nccl_value_unknown",
                f"{shown}: NCCL doesn't know the subsystem {unknown[0]}",
                remedy=f"some of: {', '.join(SUBSYSTEMS)}",
            )
    elif name in CHOICES:
        exact = name.endswith("_FAMILY")
        if (value if exact else value.upper()) not in CHOICES[name]:
            remedy = f"one of: {', '.join(CHOICES[name])}"
            yield diagnostic(
                "nccl_value_unknown", f"{shown}: NCCL knows no such value and takes no notice of it", remedy=remedy
            )
    elif name in _FILES and not machine.exists(value.lstrip("/")) and value.startswith("/"):
        yield diagnostic(
            "nccl_file_missing",
            f"{shown}: there is no such file here",
            remedy="name a file that every rank can read",
        )


def _number(shown: str, name: str, value: str) -> Iterator[Diagnostic]:
    number = number_of(value)
    match = _NUMBER.match(value)
    if number is None:
        yield diagnostic(
            "nccl_value_not_a_number",
            f"{shown}: no number of 64 bits, so that NCCL keeps its default",
            remedy=f"unset {name}",
        )
        return
    if match is None or value[match.end() :].strip():
        on = value.strip().lower() in ("true", "yes", "on", "y", "t", "enable", "enabled")
        yield diagnostic(
            "nccl_value_not_a_number",
            f"{shown} is no number: NCCL reads {number}",
            remedy=f"{name}=1" if on else f"write a number, or unset {name}",
        )
    elif re.fullmatch(r"0\d+", value.strip()) and number != int(value):
        yield diagnostic(
            "nccl_value_octal",
            f"{shown}: NCCL reads a leading 0 as octal: {number}",
            remedy=f"{name}={int(value)}",
        )
    if name in RANGES and not RANGES[name][0] <= number <= RANGES[name][1]:
        low, high = RANGES[name]
        yield diagnostic(
            "nccl_value_out_of_range", f"{shown} is out of range", remedy=f"{low} to {high}, or unset {name}"
        )
    if name == "NCCL_P2P_DISABLE" and number not in (0, 1):
        yield diagnostic(
            "nccl_value_no_effect",
            f"{shown} switches nothing off: NCCL takes 1 alone",
            remedy="NCCL_P2P_DISABLE=1",
        )


def _list_problem(value: str, allowed: tuple[str, ...]) -> str | None:
    """Returns the error in a list like "ring;allreduce:tree,ring"; None if there is none."""
    known = {name.lower() for name in allowed}
    functions = {name.lower() for name in FUNCTIONS}
    for k, part in enumerate(part for part in value.split(";") if part):
        prefix, colon, names = part.rpartition(":")
        if not colon and k > 0:
            return f"'{part}' names no function, which only the first entry may"
        if colon and prefix.lower() not in functions:
            return f"there is no function '{prefix}'"
        for name in names.removeprefix("^").split(","):
            if name and name.lower() not in known:
                return f"there is no '{name}'"
    return None


def _remedy(name: str) -> str:
    return f"some of: {', '.join(ALGORITHMS if name == 'NCCL_ALGO' else PROTOCOLS)}"


def _together(settings: Settings) -> Iterator[Diagnostic]:
    """Yields diagnostics on values that contradict each other."""
    numbers = {name: number_of(settings.values.get(name, "")) for name in NUMBERS}
    threads, sockets = numbers["NCCL_SOCKET_NTHREADS"], numbers["NCCL_NSOCKS_PERTHREAD"]
    if threads is not None and sockets is not None and threads > 0 < sockets and threads * sockets > _MOST_SOCKETS:
        yield diagnostic(
            "nccl_value_contradiction",
            f"NCCL_SOCKET_NTHREADS={threads} times NCCL_NSOCKS_PERTHREAD={sockets} are more than the "
            f"{_MOST_SOCKETS} sockets that NCCL opens to a peer",
            remedy=f"a product of at most {_MOST_SOCKETS}",
        )
    for least, most in (("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS")):
        low, high = numbers[least], numbers[most]
        if low is not None and high is not None and 0 < high < low:
            yield diagnostic(
                "nccl_value_contradiction",
                f"{least}={low} is more than {most}={high}",
                remedy=f"unset {least}, or both",
            )


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."
