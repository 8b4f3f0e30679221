"""Ways to damage bytes, lines and data: what breaks on a disk, what people type, and what an attacker would."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

ESCAPE = "\x1b[31m\x1b]0;owned\x07"
NUMBERS: list[Any] = [
    0, -1, 1, 2, 3, 7, 0.5, -0.5, 1e-4, 1e-300, 5e-324, 1e300, -1e300, 1.7e308, 2**31, 2**32, 2**53 + 1, 2**63 - 1,
    2**63, 2**64, -(2**63), 10**18, 10**30, 10**400, 10**5000,
]  # fmt: skip
TEXTS: list[Any] = [
    "", " ", "x", "-", "0", "-1", "1e999", "9" * 5000, "0x10", "1_000", "١٢", "½", "true", "null", "~", "None",
    "=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", ESCAPE, "\u202eevil", "a\nb", "a\x00b",
    "[bold]", "[/]", "[red]x[/red", "[link=http://x]y", "{x}", "%s%n", "<script>alert(1)</script>", "../../etc/passwd",
    "\ud800", "é" * 300, "a" * 100_000, "*" * 50, "100 Gb/s", "-5 Gb/s", "1e30 Gb/s", "0 s", "1e400 s", "9" * 400 + " s",
]  # fmt: skip
OTHERS: list[Any] = [None, True, False, [], {}, [[]], {"": None}, [None] * 50]
TOKENS = [
    b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"'", b"\\", b"\x00", b"\xff", b"\xc3\x28", b"null", b"-1", b"1e400",
    b"9" * 5000, b"-0.5", b"[" * 3000, b"{" * 3000, b"\n", b"\r", b"\t", b"|", b"&a", b"*a", b"<<", b"!!python/object:os",
    b"1e-320", b"\xef\xbb\xbf", b"\x1b[31m", b"=1+1", b"NaN", b"Infinity", b" " * 200, b"%", b"#", b"- ", b"? ",
]  # fmt: skip


def value(draw: random.Random) -> Any:
    """Returns a hostile value of any type."""
    return copy.deepcopy(draw.choice(draw.choice((NUMBERS, NUMBERS, TEXTS, OTHERS))))


def like(draw: random.Random, old: Any) -> Any:
    """Returns a hostile value of the same type, which passes the first check."""
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int):
        return round(old * draw.choice((0, -1, 2, 3, 10, 1000, 10**6, 10**9, 10**15))) or draw.choice((0, 1))
    if isinstance(old, float):
        return old * draw.choice((0.0, -1.0, 1e-9, 1e-3, 0.3, 3.0, 1e3, 1e9, 1e30, 1e200))
    if isinstance(old, str):
        return draw.choice([old, old.upper(), old[:-1], old * 2, *TEXTS])
    return value(draw)


def truncate(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] if draw.random() < 0.8 else text[at:]


def flip(draw: random.Random, text: bytes) -> bytes:
    out = bytearray(text)
    for _ in range(draw.choice((1, 1, 2, 8, 40))):
        if out:
            out[draw.randrange(len(out))] = draw.randrange(256)
    return bytes(out)


def splice(draw: random.Random, text: bytes) -> bytes:
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(TOKENS) + text[at + draw.choice((0, 0, 1, 3, 40)) :]


def number(draw: random.Random, text: bytes) -> bytes:
    """Replaces a run of digits."""
    starts = [i for i in range(len(text)) if text[i : i + 1].isdigit() and not text[i - 1 : i].isdigit()]
    if not starts:
        return splice(draw, text)
    start = draw.choice(starts)
    end = start
    while text[end : end + 1].isdigit():
        end += 1
    return text[:start] + shown(draw.choice(NUMBERS)).encode() + text[end:]


def lines(draw: random.Random, text: bytes) -> bytes:
    """Moves, repeats or drops lines."""
    pieces = text.split(b"\n")
    i, j = draw.randrange(len(pieces)), draw.randrange(len(pieces))
    how = draw.random()
    if how < 0.3:
        pieces[i], pieces[j] = pieces[j], pieces[i]
    elif how < 0.6:
        pieces[i:i] = [pieces[j]] * draw.choice((1, 2, 50))
    elif how < 0.8:
        del pieces[i]
    else:
        pieces[i] = pieces[i] + pieces[j]
    return b"\n".join(pieces)


WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (truncate, flip, splice, splice, number, number, lines)


def text(draw: random.Random, base: bytes) -> bytes:
    """Damages text once to three times."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        base = draw.choice(WAYS)(draw, base)
    return base


def shown(number: Any) -> str:
    """Returns a number as text, even if Python refuses to write that many digits."""
    if isinstance(number, int) and abs(number) >= 10**400:
        return ("-" if number < 0 else "") + "1" + "0" * round(math.log10(abs(number)))
    return str(number)


def data(draw: random.Random, base: Any) -> Any:
    """Damages data made of lists and mappings once to three times."""
    base = copy.deepcopy(base)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(_places(base))
        if not places:
            return value(draw)
        holder, key = draw.choice(places)
        how = draw.random()
        if how < 0.4:
            holder[key] = like(draw, holder[key])
        elif how < 0.7:
            holder[key] = value(draw)
        elif how < 0.8:
            del holder[key]
        elif how < 0.9 and isinstance(holder, dict):
            holder[shown(value(draw))[:50] if draw.random() < 0.5 else f"{key}x"] = holder[key]
        else:
            other, name = draw.choice(places)
            holder[key] = copy.deepcopy(other[name])
    return base


def _places(base: Any) -> Any:
    items = base.items() if isinstance(base, dict) else enumerate(base) if isinstance(base, list) else ()
    for key, inner in items:
        yield base, key
        yield from _places(inner)


def json_text(base: Any) -> bytes:
    """Returns JSON, including numbers that Python itself refuses to write."""
    if isinstance(base, dict):
        return b"{" + b",".join(json_text(str(k)) + b":" + json_text(v) for k, v in base.items()) + b"}"
    if isinstance(base, list | tuple):
        return b"[" + b",".join(json_text(v) for v in base) + b"]"
    if isinstance(base, bool) or base is None:
        return {True: b"true", False: b"false", None: b"null"}[base]
    if isinstance(base, int | float):
        return shown(base).encode()
    import json

    return json.dumps(base).encode()


def yaml_text(base: Any) -> bytes:
    """Returns data as YAML in flow style, which is its JSON without surrogates."""
    return json_text(base).replace(b"\\ud800", b"\\u00e9")
