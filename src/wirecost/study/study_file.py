"""The study in a store, as it was last run."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

from wirecost.errors import DeprecatedWarning, SpecError
from wirecost.spec import Study, parse_yaml, to_yaml, validate
from wirecost.storage import write_file
from wirecost.study.manifest import read_regular
from wirecost.study.store_errors import StoreError


class StudyFile:
    """The file `study.yaml` of the store at `root`."""

    def __init__(self, root: Path) -> None:
        self.path = root / "study.yaml"

    def save(self, study: Study) -> None:
        """Writes the study, unless the same study lies here already, perhaps in a user's own words.

        Raises:
            OSError: if it can't be written.
        """
        text = to_yaml(study)
        with suppress(SpecError, StoreError):
            if self.exists() and to_yaml(self.read()) == text:
                return
        write_file(self.path, text)

    def check(self, study: Study, *, was_run: bool) -> None:
        """Checks that a first run replaces no file of the user's.

        Raises:
            StoreError: if no study was run here, and another study.yaml lies here.
        """
        if not self.exists() or was_run:
            return
        with suppress(SpecError, StoreError):
            if to_yaml(self.read()) == to_yaml(study):
                return
        raise StoreError(f"{self.path}: is another study's, and none was run here; choose another --out")

    def read(self) -> Study:
        """Returns the stored study. Raises SpecError or StoreError if the directory has none."""
        path = self.path
        if not self.exists():
            raise StoreError(f"{self.path.parent}: no study was run here (there is no study.yaml)")
        try:
            text = read_regular(path).decode()
        except OSError as error:
            raise StoreError(f"{path}: can't be read ({error.strerror or error})") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: is not UTF-8 text") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecatedWarning)  # this file isn't written by hand
            return validate(Study, parse_yaml(text, str(path)), str(path))

    def exists(self) -> bool:
        """Returns whether there is one."""
        return os.path.lexists(self.path)
