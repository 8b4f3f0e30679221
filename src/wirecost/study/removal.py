"""Removes what an earlier run left."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from wirecost.study.store_errors import StoreError


def remove(path: Path) -> None:
    """Removes the file or directory at a path, if there is one.

    Raises:
        StoreError: names the path that can't be removed.
    """
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(
            f"{path}: is left of an earlier run and can't be deleted: {error.filename or path}: {error.strerror}; "
            "delete it, or have its owner do so, then go on with --resume"
        ) from error
