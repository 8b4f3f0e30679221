"""Runs a command while counters are recorded. Its output, exit code and signals pass through unchanged."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence

from wirecost.errors import WirecostError

# Signals that end or control a job. SIGKILL and SIGSTOP can't be forwarded.
_PASSED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_TICK_S = 0.1


class Watched:
    """Blocks a job's signals in this process while the context is active, before any thread is started, so that
    only `wait` receives them.
    """

    def __enter__(self) -> Watched:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C during the end has no further effect: the wait is over.
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts the command with this process's original signal mask. Raises WirecostError if it can't be
        started.
        """
        mask = self._mask
        if shutil.which(command[0]) is None:
            raise WirecostError(f"can't run '{command[0]}': no such program, or not executable")
        try:
            # No other thread exists yet, so that code in the child before exec is safe.
            return subprocess.Popen(
                command,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask) and None,  # noqa: PLW1509
            )
        except OSError as error:
            raise WirecostError(f"can't run '{command[0]}': {error.strerror or error}") from None

    def wait(self, child: subprocess.Popen[bytes], on_tick: Callable[[], None] = lambda: None) -> int:
        """Waits for the child and forwards signals. Returns its exit code, 128 + n if signal n ended it."""
        while (code := child.poll()) is None:
            info = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, _TICK_S)
            # A signal from the terminal (SI_KERNEL, positive) has reached the child too: it shares the process
            # group.
            if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
                child.send_signal(info.si_signo)
            on_tick()
        return 128 - code if code < 0 else code

    def wait_for_end(self, seconds: float | None, on_tick: Callable[[], None] = lambda: None) -> None:
        """Waits, if there is no command, for SIGINT, SIGTERM or the end of `seconds`."""
        import time

        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            remaining_s = _TICK_S if end is None else min(_TICK_S, max(end - time.monotonic(), 0))
            info = signal.sigtimedwait(_PASSED_ON, remaining_s)
            if info is not None and info.si_signo in (
                signal.SIGINT,
                signal.SIGTERM,
                signal.SIGHUP,
                signal.SIGQUIT,
            ):
                return
            on_tick()
