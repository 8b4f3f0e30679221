"""Escapes text from outside, so that it is safe to print to a terminal."""

from __future__ import annotations

import os
import unicodedata


def printable(text: str) -> str:
    """Returns `text` with every control and format character replaced by a visible escape.

    These are, for example, escape sequences, bidirectional overrides, newlines and tabs. All other characters are
    unchanged.
    """
    return "".join(_visible(c) if unicodedata.category(c).startswith("C") else c for c in text)


def encodable(name: str) -> str:
    """Returns a file name as text that can be encoded as UTF-8. Bytes that aren't valid UTF-8 are escaped
    visibly."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
