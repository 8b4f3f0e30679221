"""Few small files of what `jobs_on_gpus.py` measured, for the way between machines.

`small.tar.gz` holds the tables, logs and results without traces. `traces-N.tar` hold the traces, each compressed
better than PyTorch does, the most important job first, as long as there are files for them. `unpack` writes traces
with other bytes than were measured, and so it writes their sizes and digests in the results' manifests again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

LARGEST_BYTES = 16 << 20
MOST_FILES = 8
MOST_BYTES = 60 << 20
"""Largest size in bytes of all packed traces together."""
SPARE_BYTES = 64 << 10
LEFT_OUT = {"traces", "inductor"}


def shrunk(path: Path) -> bytes:
    """Returns a trace that was compressed with gzip, compressed with LZMA."""
    return lzma.compress(gzip.decompress(path.read_bytes()), preset=3)


def pack(out: Path, folder: Path, jobs: Sequence[str], *, files: int = MOST_FILES) -> list[str]:
    """Writes at most so many files to a folder. Returns the names of the traces that found no place."""
    folder.mkdir(parents=True, exist_ok=True)

    def small(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if LEFT_OUT & set(Path(entry.name).parts) else entry

    with tarfile.open(folder / "small.tar.gz", "w:gz") as archive:
        for path in sorted(out.iterdir()):
            if path.resolve() != folder.resolve():
                archive.add(path, path.name, filter=small)
    traces = [p for job in jobs for p in sorted((out / "runs" / job).glob("*/experiments/[!.]*/traces/*.json.gz"))]
    with ProcessPoolExecutor(min(32, os.cpu_count() or 1)) as pool:
        contents = list(pool.map(shrunk, traces))
    parts: list[list[tuple[str, bytes]]] = []
    room: list[int] = []
    left_out = []
    left = MOST_BYTES
    for path, content in zip(traces, contents, strict=True):
        name = str(path.relative_to(out).with_suffix(".xz"))
        needed = len(content) + 4096
        if needed > left:
            left_out.append(name)
            continue
        place = next((n for n, free in enumerate(room) if free >= needed), None)
        if place is None and len(parts) < files - 1 and needed <= LARGEST_BYTES - SPARE_BYTES:
            place = len(parts)
            parts.append([])
            room.append(LARGEST_BYTES - SPARE_BYTES)
        if place is None:
            left_out.append(name)
            continue
        parts[place].append((name, content))
        room[place] -= needed
        left -= needed
    for number, part in enumerate(parts, 1):
        with tarfile.open(folder / f"traces-{number}.tar", "w") as archive:
            for name, content in part:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return left_out


def unpack(folder: Path, out: Path) -> int:
    """Restores what `pack` wrote, and returns the number of traces."""
    out.mkdir(parents=True, exist_ok=True)
    if (folder / "small.tar.gz").is_file():
        with tarfile.open(folder / "small.tar.gz") as archive:
            for entry in archive:
                # `extractall` has its filter only from Python 3.11.4 on.
                if (source := archive.extractfile(entry)) is not None:
                    target = inside(out, entry.name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(source.read())
    count = 0
    for path in sorted(folder.glob("traces-*.tar")):
        with tarfile.open(path) as archive:
            for entry in archive.getmembers():
                source = archive.extractfile(entry)
                assert source is not None
                target = inside(out, entry.name).with_suffix(".gz")
                target.parent.mkdir(parents=True, exist_ok=True)
                content = gzip.compress(lzma.decompress(source.read()), 3)
                target.write_bytes(content)
                note(target, content)
                count += 1
    return count


def inside(folder: Path, name: str) -> Path:
    """Returns a file's path in a folder. Raises ValueError for one outside of it."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name} lies outside of {folder}")
    return path


def note(trace: Path, content: bytes) -> None:
    """Writes a trace's size and digest in the manifest of its result."""
    manifest = trace.parents[1] / "manifest.json"
    if manifest.is_file():
        data = json.loads(manifest.read_bytes())
        entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        data["files"][str(trace.relative_to(manifest.parent))] = entry
        manifest.write_text(json.dumps(data))
