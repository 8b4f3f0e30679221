"""Reads wirecost's own JSON, which `wirecost bench --format json` prints and a study stores for each network."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from wirecost.collectives.document import Document
from wirecost.collectives.readers.base import Reading, ResultFileError, check_rows, tables_of


def is_ours(data: Any) -> bool:
    """Returns whether decoded JSON has the keys of wirecost's own benchmark results."""
    return isinstance(data, dict) and "format_version" in data and "request" in data


def parse(text: str, where: str) -> Reading:
    """Reads wirecost's own JSON. Raises ResultFileError that names the first invalid key."""
    try:
        document = Document.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ResultFileError(f"{where}: invalid benchmark JSON: {key}: {first['msg']}"[:300]) from error
    check_rows(document.rows, where)
    if not document.rows:
        raise ResultFileError(f"{where}: a benchmark without results")
    request = document.request
    return Reading(where, tuple(tables_of(document.rows, hosts=request.hosts, groups=len(request.groups))))
