"""NCCL's settings as NCCL takes them together: environment, the user's file, /etc/nccl.conf.

A variable of the environment wins over both files. The file that NCCL_CONF_FILE names takes the place of
~/.nccl.conf, and either wins over /etc/nccl.conf (NCCL, src/misc/param.cc: setEnvFile, initEnvFunc).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.doctor.machine import Machine
from wirecost.doctor.nccl_variables import KNOWN

SYSTEM_FILE = "/etc/nccl.conf"
MAX_BYTES = 1 << 20
"""A configuration file is a few lines; NCCL sets no limit."""


@dataclass(frozen=True)
class Settings:
    """The settings in force.

    Attributes:
        values: by variable, those of files included.
        sources: where a variable is from, of those that a file sets.
        diagnostics: what is wrong with the files themselves.
    """

    values: Mapping[str, str]
    sources: Mapping[str, str]
    diagnostics: tuple[Diagnostic, ...] = ()

    def named(self, name: str) -> str:
        """Returns "NAME=value" with the file that it is from."""
        source = self.sources.get(name)
        return f"{name}={self.values[name]}" + (f" (in {source})" if source is not None else "")

    def source_of(self, name: str) -> str:
        """Returns the file that sets a variable, or "the environment"."""
        return self.sources.get(name, "the environment")


def settings_of(machine: Machine) -> Settings:
    """Returns the settings that NCCL would see in a process started here."""
    values = dict(machine.environment)
    sources: dict[str, str] = {}
    diagnostics: list[Diagnostic] = []
    named = values.get("NCCL_CONF_FILE", "")
    home = values.get("HOME", "")
    files = [named] if named else [f"{home}/.nccl.conf"] if home else []
    for path in (*files, SYSTEM_FILE):
        text, problem = _text(machine, path)
        if problem is None and text is None and path == named:
            problem = "there is no such file"
        if problem is not None:
            remedy = "name a file that every rank can read, or unset NCCL_CONF_FILE" if path == named else None
            diagnostics.append(
                diagnostic(
                    "nccl_conf_unreadable",
                    f"{path}: {problem}, so that NCCL reads nothing from it",
                    remedy=remedy,
                )
            )
        for line in (part.removesuffix("\r") for part in (text or "").split("\n")):
            if line.startswith("#") or not line.strip():
                continue
            name, equals, value = line.partition("=")
            diagnostics += _wrong_line(path, line, name, equals)
            if equals and name not in values:
                values[name] = value
                sources[name] = path
    return Settings(values, sources, tuple(diagnostics))


def with_settings(machine: Machine, settings: Settings) -> Machine:
    """Returns the machine with what NCCL's files set in its environment."""
    return replace(machine, environment=settings.values)


def _text(machine: Machine, path: str) -> tuple[str | None, str | None]:
    """Returns (the text of a file, None) or (None, what is wrong with it; None if it isn't there)."""
    try:
        # Not waiting for the other end of a pipe.
        file = os.open(_below(machine.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except (OSError, ValueError) as error:
        return None, f"can't be read ({getattr(error, 'strerror', None) or error})"
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None, "is no regular file"
        data = os.read(file, MAX_BYTES + 1)
    except OSError as error:
        return None, f"can't be read ({error.strerror})"
    finally:
        os.close(file)
    if len(data) > MAX_BYTES:
        return None, f"is larger than {MAX_BYTES >> 20} MiB"
    return data.decode("utf-8", "replace"), None


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/") if path.startswith("/") else Path(path)


def _wrong_line(path: str, line: str, name: str, equals: str) -> Iterator[Diagnostic]:
    """Yields what NCCL doesn't take from a line: it trims nothing, and knows neither quotes nor `export`."""
    plain = name.strip().removeprefix("export ").strip()
    shown = line[:80]
    if not equals:
        yield diagnostic(
            "nccl_conf_line_ignored",
            f"{path}: '{shown}' is no NAME=VALUE: NCCL ignores the line",
        )
    elif name != plain and plain in KNOWN:
        yield diagnostic(
            "nccl_conf_name_not_trimmed",
            f"{path}: '{shown}' doesn't set {plain}: NCCL keeps blanks and `export` as part of the name",
            remedy=f"write {plain}=... without them",
        )
    elif plain in KNOWN and (value := line.partition("=")[2]) and (value != value.strip() or value[0] in "\"'"):
        yield diagnostic(
            "nccl_conf_value_not_trimmed",
            f"{path}: '{shown}': NCCL keeps blanks and quotes as part of the value",
            remedy=f"write {plain}={value.strip().strip(chr(34) + chr(39))[:60]}",
        )
