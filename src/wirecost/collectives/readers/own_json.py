"""Our own JSON: what `wirecost bench --format json` prints and a study keeps of each of its networks."""

from __future__ import annotations

import json

from pydantic import ValidationError

from wirecost.collectives.document import Document
from wirecost.collectives.readers.base import Reading, ResultFileError


def is_ours(text: str) -> bool:
    """Whether JSON text claims to be a benchmark of ours."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "format_version" in found and "request" in found


def parse(text: str, where: str) -> Reading:
    """Raises ResultFileError with the first key that is not as it must be."""
    try:
        document = Document.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ResultFileError(f"{where}: not a benchmark's JSON: {key}: {first['msg']}"[:300]) from error
    if not document.rows:
        raise ResultFileError(f"{where}: a benchmark without results")
    return Reading(where, document.rows, document.request.hosts, groups=len(document.request.groups))
