"""The page of YAML keys, made from the specifications."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import annotated_types
from pydantic.fields import FieldInfo

from reference_pages import NOTICE, sentence, table
from reference_pages.meanings import COMMON, meanings, summary
from wirecost.calibration.saved import Document
from wirecost.spec import GPU, Cluster, Experiment, Link, Network, Plan, Stack, Study, Testbed, Workload
from wirecost.spec.base import Spec
from wirecost.units import BitsPerSecond, Seconds, format_rate_bps, format_size_bytes

FILES: dict[str, tuple[type[Spec], str]] = {
    "Study": (Study, "The file of `wirecost study run FILE` ([how to](../how-to/study.md))."),
    "Workload": (
        Workload,
        "An entry of a study's `workloads`, or a file for `wirecost predict FILE`. In place of dimensions, "
        "`config: PATH` names a Hugging Face `config.json`; keys beside it replace the file's "
        "([how to](../how-to/train.md#workloads)).",
    ),
    "Plan": (Plan, "An entry of a study's `plans`, or a file for `--plan` ([how to](../how-to/train.md))."),
    "Network": (Network, "An entry of a study's `networks` ([how to](../how-to/networks.md))."),
    "Cluster": (Cluster, "A file for `--cluster` ([how to](../how-to/predict.md#describe-a-cluster))."),
    "GPU": (GPU, "The value of `gpu` in a cluster, if it isn't a preset's name."),
    "Link": (Link, "The value of `intra_node` or `inter_node` in a cluster, if it isn't a preset's name."),
    "Stack": (Stack, "A file for `--stack`: what a training framework costs. `wirecost calibrate` writes one."),
    "Calibration": (
        Document,
        "What `wirecost calibrate --save FILE` writes for `--calibration FILE`, and `calibration.yaml` in the "
        "folder of `--out`.",
    ),
    "Testbed": (Testbed, "A preset for `--testbed`: where the rows of a table were measured."),
    "Experiment": (Experiment, "The file `experiment.yaml` of each result, which wirecost writes."),
}
"""Kinds of files, in the order of the page, each with its model and its use."""

_INTRODUCTION = """# YAML keys

Every YAML file that wirecost reads is checked before anything starts. An unknown key, a wrong type or a missing
unit is refused in one line, which names the nearest key or value that is allowed. A quantity is written with its
unit:

| quantity | written like | units |
|---|---|---|
| rate | `10 Gb/s` | `b/s` with `k`, `M`, `G`, `T`; `B/s` is bytes |
| time | `5 ms` | `ns`, `us`, `ms`, `s`, `min`, `h` |

A key whose default is *required* must be there. The default `none` means that the key is left out. Workloads,
networks, plans, GPUs and links are written as the name of a preset, or as a mapping of the keys below.
`wirecost presets` lists the presets, and `wirecost presets KIND NAME` prints one to start from. Editors can use
[JSON schemas](json.md) of these files.
"""


def page() -> str:
    """Returns the page: every key of every file with its type, default and meaning."""
    sections = [NOTICE, "", _INTRODUCTION]
    for title, model in models().items():
        use = f"{FILES[title][1]}\n\n" if title in FILES else ""
        sections.append(f"## {title}\n\n{summary(model)}\n\n{use}{_keys(model)}")
    return "\n".join(sections)


def models() -> dict[str, type[Spec]]:
    """Returns every specification of the page by its title: those of files, then those inside them."""
    files = {title: model for title, (model, _) in FILES.items()}
    others = {inner for model in files.values() for inner in _inner(model)} - set(files.values())
    return files | {model.__name__: model for model in sorted(others, key=lambda m: m.__name__)}


def keys(model: type[Spec]) -> list[tuple[str, str, str, str]]:
    """Returns (key, type, default, meaning) of each key of a file. An unknown meaning is empty."""
    return [
        (f"`{key}`", type_of(field.annotation, field.metadata), _default(field), _meaning(owner, name))
        for key, name, owner, field in fields(model)
    ]


def _meaning(owner: type[Spec], name: str) -> str:
    text = meanings(owner).get(name) or COMMON.get(name)
    return sentence(text) if text else ""


def _keys(model: type[Spec]) -> str:
    return table(("key", "type", "default", "meaning"), list(keys(model))) + "\n"


def fields(model: type[Spec]) -> Iterator[tuple[str, str, type[Spec], FieldInfo]]:
    """Yields (key in the file, name of the field, the class that has the field, the field)."""
    inlined = getattr(model, "INLINED", frozenset())
    for name, field in model.model_fields.items():
        if name in inlined:
            record = field.annotation
            assert isinstance(record, type)
            assert issubclass(record, Spec)
            yield from fields(record)
        else:
            yield field.alias or name, name, model, field


def _inner(model: type[Spec]) -> set[type[Spec]]:
    """Returns the specifications that occur in the keys of a specification, to any depth."""
    result: set[type[Spec]] = set()
    for _, _, _, field in fields(model):
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, Spec) and part not in result:
                result |= {part} | _inner(part)
    return result


def _parts(annotation: Any) -> Iterator[Any]:
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _parts(argument)


_NAMES = {
    Any: "any",
    bool: "true or false",
    str: "text",
    int: "whole number",
    float: "number",
    BitsPerSecond: "rate, as `10 Gb/s`",
    Seconds: "time, as `5 ms`",
}


def type_of(annotation: Any, metadata: list[Any] | None = None) -> str:
    """Returns a type as a user writes it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_of(arguments[0], list(arguments[1:]))
    if origin is typing.Literal:
        return _one_of(arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_of(a, metadata) for a in arguments if a is not type(None))
    if origin is tuple:
        inner = type_of(arguments[0])
        if arguments[-1] is Ellipsis:
            return f"list of: {inner}"
        return f"list of {len(arguments)}: {inner}"
    if origin is dict:
        return f"mapping of {type_of(arguments[0])} to {type_of(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _one_of([str(member.value) for member in annotation])
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        name = next((title for title, (model, _) in FILES.items() if model is annotation), annotation.__name__)
        return f"[{name}](#{name.lower()})"
    return f"{_NAMES[annotation]}{_bounds(annotation, metadata or [])}"


def _one_of(values: Any) -> str:
    return " or ".join(f"`{value}`" for value in values)


def _bounds(annotation: type, metadata: list[Any]) -> str:
    """Returns the limits of a number, as ', above 0'."""
    words = []
    for limit in metadata:
        for kind, word in (
            (annotated_types.Gt, "gt"),
            (annotated_types.Ge, "ge"),
            (annotated_types.Lt, "lt"),
            (annotated_types.Le, "le"),
        ):
            if isinstance(limit, kind):
                shown = {"gt": "above", "ge": "from", "lt": "below", "le": "to"}[word]
                words.append(f"{shown} {getattr(limit, word):g}")
    return f", {' '.join(words)}" if words and annotation in (int, float) else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, BitsPerSecond):
        return f"`{format_rate_bps(value)}`"
    if isinstance(value, Seconds):
        return f"`{float(value):g} s`"
    if isinstance(value, Spec):
        return "each key's default"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(str(v) for v in value)}]`"
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"`{value}` ({format_size_bytes(value)})"
    if value in ("", {}):
        return "empty"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
