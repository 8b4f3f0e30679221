"""Runs the command line in this process and judges how it ended."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

MOST_CPU_S = 30
MOST_BYTES = 3 << 30
# As Python writes them, and not where a refusal quotes what it was given. JSON's own are found when it is read.
_NO_NUMBER = re.compile(r"(?<![\w.'/-])[-+]?(?:nan|inf)(?![\w'])(?! *[,:]? *which can't be)")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile(r"""(?:^|,)"?(?:[=@+]|-(?![0-9.]))""", re.MULTILINE)


class TooLong(BaseException):
    """An input takes more processor time than any should."""


@dataclass
class Ending:
    """How a command ended. `fault` says what is wrong with that, None if nothing."""

    code: int
    out: str
    err: str
    fault: str | None


def run(argv: Sequence[str]) -> Ending:
    """Runs `wirecost` with these arguments, in bounded time and memory."""
    from wirecost.cli import main

    out, err = _Text(), _Text()
    code: Any = None
    fault = None
    before = sys.stdout, sys.stderr, gc.get_threshold()
    try:
        with _bounded(), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            sys.stdout, sys.stderr = out, err
            main(list(argv))
    except SystemExit as ending:
        code = ending.code
    except TooLong:
        fault = f"more than {MOST_CPU_S} s of processor time"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        fault = "".join(traceback.format_exception(error)[-4:])
    finally:
        sys.stdout, sys.stderr = before[:2]
        gc.set_threshold(*before[2])
    shown, told = out.getvalue(), err.getvalue()
    code = 0 if code is None else code
    return Ending(code, shown, told, fault or _fault(argv, code, shown, told))


def _fault(argv: Sequence[str], code: Any, out: str, err: str) -> str | None:
    refused = [line for line in err.splitlines() if line.startswith("wirecost: ")]
    if code not in (0, 1, 2):
        return f"exit code {code}: {err[-300:]}"
    if "Traceback" in err or "out of memory" in err or "Warning" in err:
        return f"stderr: {err[-500:]}"
    if code == 2 and (len(refused) != 1 or err.count("\n") != 1):
        return f"a refusal is one line, not {err[:500]!r}"
    for name, text in (("stdout", out), ("stderr", err)):
        if (found := _CONTROL.search(text)) is not None:
            return f"{name} holds {found[0]!r}: {text[max(0, found.start() - 80) :][:160]!r}"
    if code != 2 and "json" not in argv and (found := _NO_NUMBER.search(out)) is not None:
        return f"stdout holds {found[0]!r}: {out[max(0, found.start() - 120) :][:200]!r}"
    if "json" in argv and code == 0:
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            return f"no JSON: {error}: {out[:200]!r}"
    if "csv" in argv and code == 0 and (found := _FORMULA.search(out)) is not None:
        return f"a formula in CSV: {out[found.start() :][:80]!r}"
    return None


def _refuse(text: str) -> Any:
    raise ValueError(text)


class _Text(io.TextIOWrapper):
    """Standard output that keeps what is written, bytes too, as UTF-8 allows it."""

    def __init__(self) -> None:
        self._kept = io.BytesIO()
        super().__init__(self._kept, encoding="utf-8", errors="surrogateescape", write_through=True)

    def getvalue(self) -> str:
        self.flush()
        return self._kept.getvalue().decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def ring(_: int, frame: FrameType | None) -> None:
        raise TooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    previous = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
