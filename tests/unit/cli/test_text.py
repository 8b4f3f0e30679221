from __future__ import annotations

import pytest

from wirecost.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain µs € [bold]", "plain µs € [bold]"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines\tand\rmore", "two\\x0alines\\x09and\\x0dmore"),
        ("\u202eright to left", "\\u202eright to left"),
        ("\x9b1m", "\\x9b1m"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_control_characters_are_shown_and_the_rest_stays(text: str, shown: str) -> None:
    assert printable(text) == shown
