"""Parts of JSON schemas of outputs."""

from __future__ import annotations

from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def record(
    properties: dict[str, Any], *, optional: tuple[str, ...] = (), title: str | None = None
) -> dict[str, Any]:
    """Returns the schema of an object that has all these keys, `optional` ones perhaps, and no other."""
    schema: dict[str, Any] = {"$schema": DRAFT, "title": title} if title else {}
    return schema | {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }


def typed(text: str, description: str | None = None) -> dict[str, Any]:
    """Returns the schema of a type written as `integer`, or `integer?` where null is allowed."""
    name = text.removesuffix("?")
    schema: dict[str, Any] = {"type": [name, "null"] if text.endswith("?") else name}
    return schema | ({"description": description} if description else {})


def keys(**types: str) -> dict[str, Any]:
    """Returns the schemas of keys by their types, written as for `typed`."""
    return {name: typed(text) for name, text in types.items()}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": items}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema that allows null too."""
    return {"anyOf": [schema, {"type": "null"}]}
