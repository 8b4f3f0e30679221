"""What the tests share: where they can't run, they say so."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from support.fuzzing.seed import COUNT, SEED
from support.paths import SHARED

# The time that an example takes decides no test.
settings.register_profile("wirecost", deadline=None)
settings.load_profile("wirecost")


def pytest_configure() -> None:
    # Tests set the width that they need. Parallel workers get one from pytest-xdist, and readline sets one for the
    # processes that a test starts as soon as anything imports it.
    with suppress(ImportError):
        importlib.import_module("readline")
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")  # os.environ doesn't know readline's
    _restore_signals()


def _restore_signals() -> None:
    """In the background of a shell, or under nohup, signals are ignored, which processes started here would inherit;
    a shell can't trap them again."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_report_header() -> str:
    return f"fuzz: WIRECOST_FUZZ_SEED={SEED}, {COUNT} inputs of each kind (WIRECOST_FUZZ_COUNT)"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _groups(items)
    reasons = {
        "needs_root": _no_namespaces,
        "needs_gpu": lambda: None if shutil.which("nvidia-smi") else "no NVIDIA GPU here",
        "needs_shared": lambda: None if SHARED.is_dir() else "no reference data beside the checkout",
        "needs_chromium": lambda: None if shutil.which("chromium") else "no Chromium here",
    }
    for marker, why_not in reasons.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and (reason := why_not()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


def _groups(items: list[pytest.Item]) -> None:
    """Keeps the integration tests of a file, and all that start a Slurm, on one parallel worker: they share what takes
    long to set up, and look for what a test of theirs left behind."""
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("slurm" if "slurm" in item.path.stem else item.path.stem))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Ends a parallel run whose groups are ignored: two Slurms at once give their jobs the same numbers and ports."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and any("@" not in item.nodeid for item in grouped):
        pytest.exit("pytest-xdist ignores the groups of tests with this version of pytest", returncode=4)


def _no_namespaces() -> str | None:
    code = "from wirecost.emulation.kernel import enter_isolation; enter_isolation()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return None if run.returncode == 0 else run.stderr.strip().splitlines()[-1]


@pytest.fixture
def shared() -> Path:
    return SHARED
