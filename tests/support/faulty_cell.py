"""The process of an experiment whose ranks do something else first (see `support.studies.faulty_ranks`).

It stands in the place of `wirecost.study.cell`: its ranks are forked, too, so that PyTorch is loaded once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from wirecost.study import cell
from wirecost.train.worker import run_here

BODY = "WIRECOST_TEST_BODY"
"""Environment variable with the code that each rank runs first."""


def preload() -> None:
    cell.preload()
    cell.run_here = _run_faulty  # pyright: ignore[reportPrivateImportUsage]


def main(argv: Sequence[str]) -> int:
    return cell.main(argv)


def _run_faulty(directory: Path) -> NoReturn:
    import wirecost.train.loop as loop
    import wirecost.train.worker as worker

    sys.argv = ["faulty", str(directory)]
    exec(os.environ[BODY], {"os": os, "sys": sys, "loop": loop, "worker": worker})
    run_here(directory)
