"""The diagnostic: one typed statement about a result, a log, a trace or a machine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_CODE = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


class Severity(StrEnum):
    """How much a diagnostic matters.

    Attributes:
        OK: something works as it should.
        INFO: something to know when reading the numbers; it makes none of them wrong.
        WARNING: it costs speed, or makes numbers less certain or incomplete.
        ERROR: something can't work, or the numbers concerned mean nothing.
    """

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def is_at_least(self, other: Severity) -> bool:
        """Returns whether this severity is `other` or a graver one."""
        order = list(Severity)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One diagnostic. New ones are made by `wirecost.diagnostics.diagnostic`, which checks the code.

    A diagnostic that is read from a file may have a code that this version doesn't register.

    Attributes:
        code: lower-case letters, digits and underscores; stable over versions.
        message: one line that says what was seen and what it does to the answer.
        remedy: one line that says what to do; None where nothing needs to be done or is known to help.
        subject: what the diagnostic is about, such as "rank 3", a host, a port or a file; None for everything.
        count: how many times it was seen; None where counting has no meaning.

    Raises:
        ValueError: if the code has other characters.
    """

    code: str
    severity: Severity
    message: str
    remedy: str | None = None
    subject: str | None = None
    count: int | None = None

    __pydantic_config__ = {"extra": "ignore"}  # as a plain dataclass of msgspec's is read

    def __post_init__(self) -> None:
        if _CODE.fullmatch(self.code) is None:
            raise ValueError("code: a diagnostic's code has lower-case letters, digits and underscores")

    def as_row(self) -> dict[str, Any]:
        """Returns every field as plain data, for a table."""
        return asdict(self) | {"severity": self.severity.value}

    def as_json(self) -> dict[str, Any]:
        """Returns code, severity, message and remedy as plain data; subject and count where they are set."""
        optional = ("subject", "count")
        return {key: value for key, value in self.as_row().items() if key not in optional or value is not None}
