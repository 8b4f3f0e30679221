"""Reads and writes specifications as YAML: safely, without duplicate keys, and with errors that name the place."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from wirecost.errors import SpecError, one_of
from wirecost.reading import read_text

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
    """Returns a one-line message with the first problem of a validation, and the number of the others.

    Args:
        inlined: names of records whose keys stand in the specification itself.
    """
    details = error.errors()
    # pydantic reports a list whose only entry is invalid as too short as well. This is one mistake.
    problems = [
        p
        for p in details
        if p["type"] != "too_short"
        or not any(o["loc"] != p["loc"] and o["loc"][: len(p["loc"])] == p["loc"] for o in details)
    ]
    first = problems[0]
    key = ""
    place = first["loc"]
    steps = place[1:] if len(place) > 1 and str(place[0]) in inlined else place
    # A value that may be one of several things has the name of the one that was tried among its steps.
    for step in (s for s in steps if not str(s).startswith("function-")):
        key += f"[{step}]" if isinstance(step, int) else f"{'.' if key else ''}{step}"
    message = str(first["msg"]).removeprefix("Value error, ")
    context = first.get("ctx", {})
    if first["type"] in ("enum", "literal_error"):
        message = one_of("value", first["input"], re.findall(r"'([^']*)'", str(context.get("expected", ""))))
    elif first["type"] == "tuple_type":
        message = f"should be a list, as in [a, b], not {str(first['input'])[:60]!r}"
    elif first["type"] == "missing":
        message = "is missing"
    elif first["type"] not in ("value_error", "assertion_error"):
        message = f"{message[:1].lower()}{message[1:]}, not {str(first['input'])[:60]!r}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {key}: {message}{more}" if key else f"{where}: {message}{more}"


def to_yaml(spec: BaseModel) -> str:
    """Returns a specification as YAML, from which `load` reads an equal one."""
    data = spec.model_dump(mode="json", exclude_none=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
