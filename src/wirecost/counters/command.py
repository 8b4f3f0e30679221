"""Runs a command under watch: its output, exit code and signals pass through as if nobody watched."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence

from wirecost.errors import WirecostError

# Signals that end or steer a job. SIGKILL and SIGSTOP can't be passed on.
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
    """Blocks the signals of a job in this process from `with` on, before any thread is started, so that they reach
    `wait` alone."""

    def __enter__(self) -> Watched:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C while we were finishing has had its effect: it ended the wait.
        while signal.sigtimedwait(_PASSED_ON, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts the command with the signal mask that we were called with. Raises WirecostError if it can't."""
        mask = self._mask
        if shutil.which(command[0]) is None:
            raise WirecostError(f"can't run '{command[0]}': no such program, or not executable")
        try:
            # Before any thread of ours exists, so that the child's own code before exec is safe.
            return subprocess.Popen(
                command,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask) and None,  # noqa: PLW1509
            )
        except OSError as error:
            raise WirecostError(f"can't run '{command[0]}': {error.strerror or error}") from None

    def wait(self, child: subprocess.Popen[bytes], on_tick: Callable[[], None] = lambda: None) -> int:
        """Waits for the child, passing signals on. Its exit code; 128 + n if signal n ended it."""
        while (code := child.poll()) is None:
            info = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, _TICK_S)
            # What the terminal sends (SI_KERNEL, positive) has reached the child too: it shares our process group.
            if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
                child.send_signal(info.si_signo)
            on_tick()
        return 128 - code if code < 0 else code

    def wait_for_end(self, seconds: float | None, on_tick: Callable[[], None] = lambda: None) -> None:
        """Without a command: until SIGINT or SIGTERM, or for some seconds."""
        import time

        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            left = _TICK_S if end is None else min(_TICK_S, max(end - time.monotonic(), 0))
            info = signal.sigtimedwait(_PASSED_ON, left)
            if info is not None and info.si_signo in (
                signal.SIGINT,
                signal.SIGTERM,
                signal.SIGHUP,
                signal.SIGQUIT,
            ):
                return
            on_tick()
