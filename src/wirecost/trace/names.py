"""Kernel names as profilers write them, down to the function that they name."""

from __future__ import annotations

import re

_TEMPLATE = re.compile(r"<[^<>]*>")
_MAX_NESTING = 20
_MANGLED_PART = re.compile(r"(\d{1,4})")
_MAX_NAME = 1 << 14


def function_name(name: str) -> str:
    """Returns a kernel's own name, demangled, without template arguments and parameters.

    Those name the types of other functions.
    """
    head = name[:_MAX_NAME]
    if head.startswith(("_Z", "__Z")):
        head = _demangled(head)
    # Operators in names contain unbalanced angle brackets; only the text before them is used.
    head = head.replace("(anonymous namespace)", "").replace("->", "")
    for _ in range(_MAX_NESTING):
        head, changed = _TEMPLATE.subn("", head)
        if not changed:
            break
    return head.split("(", 1)[0].strip()


def _demangled(name: str) -> str:
    """Returns the nested name at the front of a symbol of the Itanium C++ ABI (section 5.1): `_ZN5aiter3addIfEEvv`
    is `aiter::add`."""
    at = name.index("Z") + 1
    nested = name.startswith("N", at)
    if nested:
        at += 1
        while at < len(name) and name[at] in "rVKRO":  # qualifiers of a member function
            at += 1
    parts: list[str] = []
    while match := _MANGLED_PART.match(name, at):
        length = int(match[1])
        part = name[match.end() : match.end() + length]
        if len(part) < length:
            break
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
        at = match.end() + length
        if not nested:
            break
    return "::".join(parts) if parts else name
