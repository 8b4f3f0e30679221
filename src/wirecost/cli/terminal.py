"""Text from outside on a terminal: shown, never obeyed."""

from __future__ import annotations

import unicodedata

# Control, format (bidirectional overrides, zero-width), surrogate, private use, line and paragraph separators.
_HARMFUL = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str, width: int | None = None) -> str:
    """`text` with whatever could steer a terminal written as an escape, and shortened to `width` characters."""
    if not text.isprintable():
        text = "".join(
            c if unicodedata.category(c) not in _HARMFUL else c.encode("unicode_escape", "surrogatepass").decode()
            for c in text
        )
    if width is not None and len(text) > width:
        text = text[: max(width - 1, 0)] + "…"
    return text
