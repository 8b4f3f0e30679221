"""Writes and checks `manifest.json` of a finished experiment: its name and each file's size and SHA-256.

    {"format_version": 1, "name": SLUG, "files": {"samples/rank-0.jsonl": {"bytes": 812, "sha256": "9f86..."}}}

Names are relative to the manifest's directory, with `/` between folders. Regular files that the manifest doesn't
name, such as a user's notes, are ignored. Results of earlier versions have no manifest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from wirecost.errors import WirecostError
from wirecost.storage import naming, sync, write_file

MANIFEST = "manifest.json"
MOST_BYTES = 1 << 30
"""Largest size of a result's file that is read whole."""
SMALL_BYTES = 256 << 10
"""Largest size of a file that is read only to check its SHA-256."""
MOST_LEVELS = 4
"""Most levels of folders in a result. A result has one level; a link could create a loop."""

SUFFIXES = (".json", ".jsonl", ".yaml", ".log", ".gz")
"""Suffixes of a result's files. A folder whose name has one is in the place of a file."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class DamageError(WirecostError):
    """Raised for a damaged file, with one line that names it relative to its result's directory."""


def _relative(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or str(path) != name:
        raise ValueError("is no path within the result's directory")
    return name


class FileRecord(BaseModel):
    """Size and SHA-256 (in hexadecimal digits) of one file when it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: NonNegativeInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """Every file of a result; `name` is the name of its directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1] = 1
    name: str
    files: Mapping[Annotated[str, AfterValidator(_relative)], FileRecord]


class CheckedFiles:
    """Reads the files of a result and checks them against the manifest.

    The constructor checks kinds, names and sizes and reads only the manifest.

    Args:
        name: the expected name of the result's directory; None accepts the manifest's name.

    Raises:
        DamageError: for a file that is missing, not regular or of another size, or a manifest of another result.
    """

    def __init__(self, directory: Path, name: str | None = None) -> None:
        self.directory = directory
        self._checked: set[str] = set()
        self.sizes = _sizes(directory)
        self.manifest: Manifest | None = None
        if MANIFEST not in self.sizes:
            return
        self.manifest = self.parse(MANIFEST, Manifest)
        if name is not None and self.manifest.name != name:
            raise DamageError(f"{MANIFEST} is of another experiment ({self.manifest.name[:200]})")
        for relative, record in self.manifest.files.items():
            if relative not in self.sizes:
                raise DamageError(f"{relative} is missing")
            if self.sizes[relative] != record.bytes:
                raise DamageError(f"{relative} has {self.sizes[relative]} bytes; {record.bytes} were written")

    def read(self, relative: str) -> bytes:
        """Returns a file's content. Raises DamageError if its SHA-256 differs from the recorded one."""
        try:
            content = read_regular(self.directory / relative)
        except OSError as error:
            raise _unreadable(relative, error) from error
        self._check(relative, hashlib.sha256(content).hexdigest())
        return content

    def parse(self, relative: str, model: type[M]) -> M:
        """Returns a JSON file as a model. Raises DamageError if it doesn't validate."""
        return self.convert(relative, model.model_validate_json)

    def convert(self, relative: str, parse: Callable[[bytes], T]) -> T:
        """Returns the result of `parse` on a file's content. Raises DamageError if `parse` raises pydantic's
        ValidationError.
        """
        try:
            return parse(self.read(relative))
        except ValidationError as error:
            raise DamageError(f"{relative} can't be read as a result ({first_reason(error)})") from error

    def check_contents(self, most_bytes: int | None = None) -> None:
        """Checks the SHA-256 of the manifest's files of at most `most_bytes` that haven't been read yet. Raises
        DamageError if one differs.
        """
        for relative, record in self.manifest.files.items() if self.manifest else ():
            if relative in self._checked or (most_bytes is not None and record.bytes > most_bytes):
                continue
            try:
                with open(f"{self.directory}/{relative}", "rb") as file:  # noqa: PTH123 - quicker, for 100,000 files
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise _unreadable(relative, error) from error
            self._check(relative, digest)

    def _check(self, relative: str, digest: str) -> None:
        record = self.manifest.files.get(relative) if self.manifest else None
        if record is not None and digest != record.sha256:
            raise DamageError(f"{relative} has changed since it was written (its SHA-256 is another)")
        self._checked.add(relative)


def write_manifest(directory: Path, name: str) -> None:
    """Makes all files of a result durable and writes their manifest. Raises OSError or DamageError, naming the
    file.
    """
    files = {}
    for relative in sorted(_sizes(directory)):
        if relative == MANIFEST:
            continue
        path = directory / relative
        with naming(path), path.open("rb") as file:
            # An error in the write-back of another process's data is reported here or never.
            sync(file.fileno(), path)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[relative] = FileRecord(bytes=file.tell(), sha256=digest)
    write_file(directory / MANIFEST, Manifest(name=name, files=files).model_dump_json(indent=1))


def read_regular(path: Path) -> bytes:
    """Returns the content of a regular file. Raises OSError for another kind of file (it could be endless) or a
    file that is too long.
    """
    # Without the flag, opening a FIFO waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError("it is not a regular file")
        if state.st_size > MOST_BYTES:
            raise OSError(f"it is longer than {MOST_BYTES >> 20} MiB")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    finally:
        os.close(descriptor)


def first_reason(error: ValidationError) -> str:
    """Returns the first validation error in one short line."""
    first = error.errors()[0]
    return ": ".join([*map(str, first["loc"]), first["msg"]])[:200]


def _sizes(directory: Path) -> dict[str, int]:
    """Returns the size in bytes of every file below a directory by its relative name; hidden files are left out.

    Raises:
        DamageError: for an unreadable folder, or an entry that is neither a regular file nor a folder.
    """
    sizes: dict[str, int] = {}
    folders = [("", 0)]
    while folders:
        folder, level = folders.pop()
        name = folder
        try:
            with os.scandir(f"{directory}/{folder}") as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    name = f"{folder}{entry.name}"
                    state = entry.stat()
                    if stat.S_ISREG(state.st_mode):
                        sizes[name] = state.st_size
                    elif not stat.S_ISDIR(state.st_mode) or name.endswith(SUFFIXES):
                        raise DamageError(f"{name} is not a regular file")
                    elif level + 1 < MOST_LEVELS:
                        folders.append((f"{name}/", level + 1))
                    else:
                        raise DamageError(f"{name}: too many folders lie in each other")
        except OSError as error:
            raise _unreadable(name.rstrip("/") or "the directory", error) from error
    return sizes


def _unreadable(name: str, error: OSError) -> DamageError:
    if error.errno == errno.ENOENT:
        return DamageError(f"{name} is missing")
    return DamageError(f"{name} can't be read ({error.strerror or error})")
