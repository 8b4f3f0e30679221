"""Reads configuration files, also those of models in the local Hugging Face cache."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from wirecost.errors import WirecostError
from wirecost.reading import read_bytes
from wirecost.spec.huggingface.config import shown

MAX_BYTES = 16 << 20
"""Longest file that is read. Lists of the layers that a quantizer leaves out take a few MiB."""
MOST_SNAPSHOTS = 1000
PREFIX = "hf://"
_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(@(?P<revision>[\w.-]{1,95}))?"
)


def read_configuration(path: Path) -> dict[str, Any]:
    """Returns the keys and values of a configuration file.

    Raises:
        ValueError: if it can't be read, or isn't a mapping. The message is one line and names the file.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        raw = read_bytes(path, most_bytes=MAX_BYTES, what="configuration", pipes=False)
    except WirecostError as error:
        raise ValueError(str(error)) from error
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected keys with values, found {type(data).__name__}")
    return data


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"the key {shown(key)} appears twice")
        data[key] = value
    return data


def _constant(text: str) -> str:
    """Returns NaN and infinities as text: configurations have them under keys that aren't read, and no key that is
    read takes text for a number."""
    return text


def cached_configuration(address: str) -> Path:
    """Returns the configuration file in the local cache of a model named `hf://ORG/NAME`, with `@REVISION` behind
    it where another revision than `main` is meant. Nothing is downloaded.

    Raises:
        ValueError: for another form of the name, or if the file isn't in the cache. The message says how to get
            it.
    """
    match = _NAME.fullmatch(address.removeprefix(PREFIX))
    if match is None or ".." in address:
        raise ValueError(f"{shown(address)}: should be hf://ORG/NAME or hf://ORG/NAME@REVISION")
    repository, revision = match["repository"], match["revision"]
    cache = cache_folder()
    folder = cache / f"models--{repository.replace('/', '--')}"
    path = _of_revision(folder, revision or "main")
    if path is None and revision is None:
        path = _newest(folder)
    if path is None:
        of_revision = f" --revision {revision}" if revision else ""
        raise ValueError(
            f"{address}: no config.json of this model in the local Hugging Face cache {cache}; download it with: "
            f"hf download {repository} config.json{of_revision}"
        )
    return path


def cache_folder() -> Path:
    """Returns the folder of cached models: HF_HUB_CACHE, or `hub` in HF_HOME or in ~/.cache/huggingface."""
    if given := os.environ.get("HF_HUB_CACHE"):
        return Path(given).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _of_revision(folder: Path, revision: str) -> Path | None:
    """Returns the configuration of a branch, tag or commit, or None if it isn't there."""
    commit = revision
    reference = folder / "refs" / revision
    if reference.is_file():
        text = reference.read_bytes()[:200].decode("ascii", "replace").strip()
        commit = text if re.fullmatch(r"[0-9a-f]{1,64}", text) else revision
    path = folder / "snapshots" / commit / "config.json"
    return path if path.is_file() else None


def _newest(folder: Path) -> Path | None:
    """Returns the configuration that was written last, or None if there is none."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        return None
    paths = [
        snapshot / "config.json" for snapshot, _ in zip(snapshots.iterdir(), range(MOST_SNAPSHOTS), strict=False)
    ]
    files = [path for path in paths if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime, default=None)
