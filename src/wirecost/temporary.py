"""Creates temporary directories that are removed however their process ends."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirecost.storage import TEMPORARY, StorageError

# Standard input is a pipe. It closes when the process at its other end terminates, also by SIGKILL. The loop gives
# processes that still write to the directory a few seconds to terminate.
_KEEPER = """\
trap '' HUP INT QUIT TERM
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && [ ! -e "$1" ] && exit 0
    sleep 0.3
done
"""


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    """Creates a directory that only this user can read, and removes it with its contents when the context is left.

    A separate process removes the directory if this process is killed.

    Raises:
        StorageError: if no directory for temporary files can be written.
        OSError: if the directory can't be created.
    """
    try:
        parent = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(os.environ.get("TMPDIR", "temporary files"), TEMPORARY) from error
    path = Path(parent) / f"{prefix}{secrets.token_hex(8)}"
    read_end, write_end = os.pipe()
    try:
        keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "wirecost-keeper", str(path)],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Signals from the terminal reach only this process, which then removes the directory itself.
            start_new_session=True,
            cwd="/",
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    try:
        path.mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(write_end)
        keeper.wait()
