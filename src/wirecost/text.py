"""Text from outside, made harmless for a terminal."""

from __future__ import annotations

import os
import unicodedata


def printable(text: str) -> str:
    """Control and format characters (escape sequences, bidirectional overrides) become visible escapes; newlines
    and tabs too. Everything that a person would read stays."""
    return "".join(_visible(c) if unicodedata.category(c).startswith("C") else c for c in text)


def encodable(name: str) -> str:
    """A file's name as text that has a UTF-8 form: bytes of it that have none become visible escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
