"""Signals that ask a command to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from wirecost.cli.signals import AGAIN_S, ENDING, EndingSignal, InterruptedBySignal, ending_signals


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_interrupts_and_is_remembered(number: signal.Signals) -> None:
    # A shell that starts the tests in the background has them ignore SIGINT and SIGQUIT.
    original = signal.signal(number, signal.default_int_handler)
    before = signal.getsignal(number)
    with ending_signals() as ending:
        # An exception that is kept isn't taken for one that was swallowed.
        with pytest.raises(KeyboardInterrupt) as _kept:
            signal.raise_signal(number)
            # Python may run the handler a little later, or inside a finalizer, after which it is repeated.
            time.sleep(10)
        assert ending.number is number
        assert ending.exit_code == 128 + number
        assert ending.message == ("interrupted" if number is signal.SIGINT else ending.message)
        assert number is signal.SIGINT or ending.message.startswith(f"ended by {number.name}")
    assert signal.getsignal(number) is before
    signal.signal(number, original)


def test_a_second_signal_does_not_interrupt_the_cleaning_up_but_a_later_one_does() -> None:
    ending = EndingSignal()
    ending.over = True  # the test ends without a command
    with pytest.raises(InterruptedBySignal) as _kept:
        ending.receive(signal.SIGINT, None)
    ending.receive(signal.SIGTERM, None)
    assert ending.number is signal.SIGINT
    ending._last_s -= 2 * AGAIN_S
    with pytest.raises(InterruptedBySignal):
        ending.receive(signal.SIGTERM, None)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals() as ending:
            signal.raise_signal(signal.SIGHUP)
        assert ending.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("how", ["finalizer", "weak reference"])
def test_a_signal_in_a_finalizer_is_not_lost(how: str) -> None:
    with ending_signals() as ending, pytest.raises(InterruptedBySignal) as _kept:
        if how == "finalizer":
            value = Finalized()
        else:
            value = EndingSignal()
            reference = weakref.ref(value, lambda _: signal.raise_signal(signal.SIGTERM))
            assert reference() is value
        del value
        time.sleep(60)
        raise AssertionError("the signal was lost")
    assert ending.number is signal.SIGTERM


def swallow_base() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(1)
    except BaseException:  # noqa: BLE001 - what some libraries do while they are imported
        pass


def swallow_wrapped() -> None:
    class Named:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(1)

    # Python 3.11 turns any exception in __set_name__ into RuntimeError.
    with suppress(Exception):
        type("Owner", (), {"name": Named()})


@pytest.mark.parametrize("swallow", [swallow_base, swallow_wrapped])
def test_a_signal_whose_exception_a_library_swallows_is_not_lost(swallow: Callable[[], None]) -> None:
    with ending_signals() as ending, pytest.raises(InterruptedBySignal) as _kept:
        swallow()
        time.sleep(60)
        raise AssertionError("the signal was lost")
    assert ending.number is signal.SIGTERM


def test_a_signal_that_became_another_error_is_not_sent_again() -> None:
    def fail() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(1)
        except KeyboardInterrupt as error:
            raise ValueError("a library's own error") from error

    before = threading.active_count()
    with ending_signals() as ending:
        try:
            fail()
        except ValueError:
            assert ending.number is signal.SIGTERM
            assert threading.active_count() == before
            ending.over = True  # the command reports the signal and ends
    assert ending.exit_code in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert threading.active_count() == before


def run(code: str, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with a module of its own in place of typer, which it imports first."""
    (folder / "typer.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *sys.path))}
    command = [sys.executable, "-m", "wirecost", *argv]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_ctrl_c_while_the_command_starts_prints_no_traceback(tmp_path: Path) -> None:
    done = run("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_after_the_command_has_ended_prints_no_traceback(tmp_path: Path) -> None:
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "sys.path.remove(os.path.dirname(__file__))\n"
        "del sys.modules['typer']\n"
        "import typer\n"
    )
    done = run(code, tmp_path, "--version")
    assert done.returncode == -signal.SIGINT
    assert done.stdout.startswith("wirecost ")
    assert done.stderr == ""
