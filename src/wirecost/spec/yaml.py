"""Reads and writes specifications as YAML: safely, without duplicate keys, and with errors that name the place."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from wirecost.errors import SpecError, one_of
from wirecost.reading import read_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_BYTES = 1 << 20
MAX_ALIASES = 200
"""Largest number of YAML aliases. More of them are a mistake, or an attack by nested aliases."""

M = TypeVar("M", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > MAX_ALIASES:
                raise yaml.MarkedYAMLError(
                    problem=f"more than {MAX_ALIASES} aliases", problem_mark=self.get_mark()
                )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is not text", problem_mark=key_node.start_mark
                )
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' appears twice", problem_mark=key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 reads `1:30` as 90 and `on` as true. In a specification both are text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag in {
        "tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge",
    }]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}  # fmt: skip
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Parses a mapping from YAML text.

    Args:
        where: names the file in error messages.

    Raises:
        SpecError: if the text isn't YAML, isn't a mapping, or repeats a key. The message names line and column.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise SpecError(f"{where}: longer than {MAX_BYTES >> 20} MiB, which no specification is")
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader, made stricter
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise SpecError(f"{place}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(f"{where}: not readable as YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(data, dict):
        raise SpecError(f"{where}: expected keys with values, found {type(data).__name__}")
    return data


def load(model: type[M], path: Path) -> M:
    """Reads and validates one specification.

    Raises:
        SpecError: if the file can't be read or is invalid. The message is one line with the file, the key and
            what is allowed.
    """
    return validate(model, read_yaml(path), str(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a mapping from a YAML file.

    Raises:
        SpecError: if the file can't be read as UTF-8 text, and as in `parse_yaml`.
    """
    text = read_text(path, most_bytes=MAX_BYTES, what="specification", error=SpecError)
    return parse_yaml(text, str(path))


def validate(model: type[M], data: Any, where: str) -> M:
    """Validates data as a specification.

    Args:
        where: names the file in error messages.

    Raises:
        SpecError: see `load`.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise SpecError(_first_line(error, where, getattr(model, "INLINED", ()))) from error
    except RecursionError as error:
        raise SpecError(f"{where}: nested too deeply") from error


def _first_line(error: ValidationError, where: str, inlined: Container[str]) -> str:
    """Returns a one-line message with all missing keys or else the first problem, and the number of the others.

    Args:
        inlined: names of records whose keys stand in the specification itself.
    """
    problems = _mistakes(error.errors())
    missing = [_key(p["loc"], inlined) for p in problems if p["type"] == "missing"]
    others = [p for p in problems if p["type"] != "missing"]
    if missing:
        key, message = ", ".join(missing), "is missing" if len(missing) == 1 else "are missing"
        more = len(others)
    else:
        key, message = _key(others[0]["loc"], inlined), _message(others[0])
        more = len(others) - 1
    counted = f" (and {more} more)" if more else ""
    return f"{where}: {key}: {message}{counted}" if key else f"{where}: {message}{counted}"


def _mistakes(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Returns validation problems without those that only repeat another one.

    pydantic reports a list whose only entry is invalid as too short as well. A mapping where a preset's name may
    stand is reported as no text as well.
    """

    def repeats(problem: ErrorDetails) -> bool:
        place = problem["loc"]
        if problem["type"] == "too_short":
            return any(o["loc"] != place and o["loc"][: len(place)] == place for o in problems)
        if problem["type"] == "string_type" and isinstance(problem["input"], dict):
            return any(o["loc"] != place and o["loc"][: len(place) - 1] == place[:-1] for o in problems)
        return False

    return [p for p in problems if not repeats(p)]


def _key(place: tuple[int | str, ...], inlined: Container[str]) -> str:
    """Returns the place of a problem as keys, for example `scaling[0].kind`."""
    key = ""
    steps = place[1:] if len(place) > 1 and str(place[0]) in inlined else place
    # A value that may be one of several things has the name of the one that was tried among its steps.
    for step in (s for s in steps if not str(s).startswith("function-")):
        key += f"[{step}]" if isinstance(step, int) else f"{'.' if key else ''}{step}"
    return key


def _message(problem: ErrorDetails) -> str:
    """Returns what is wrong with a value."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("enum", "literal_error"):
        expected = str(problem.get("ctx", {}).get("expected", ""))
        return one_of("value", problem["input"], re.findall(r"'([^']*)'", expected))
    if problem["type"] == "tuple_type":
        return f"should be a list, as in [a, b], not {_shown(problem['input'])}"
    if problem["type"] in ("value_error", "assertion_error"):
        return message
    return f"{message[:1].lower()}{message[1:]}, not {_shown(problem['input'])}"


def _shown(value: object) -> str:
    try:
        return repr(str(value)[:60])
    except ValueError:  # Python refuses to convert more than 4300 digits to text
        return "a value with a number of very many digits"


def to_yaml(spec: BaseModel) -> str:
    """Returns a specification as YAML, from which `load` reads an equal one."""
    data = spec.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
