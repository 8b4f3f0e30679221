"""Handles signals that end a command: it cleans up as after Ctrl-C and reports the signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

AGAIN_S = 2.0
"""Time in seconds after an ending signal in which further ones have no effect."""

SEND_AGAIN_S = 0.05


class InterruptedBySignal(KeyboardInterrupt):
    """Raised when an ending signal has arrived. (If a plain KeyboardInterrupt passes through code that Python
    evaluates from a string, Python always ends with SIGINT.)

    Attributes:
        when_deleted: Called when Python deletes the exception. An exception lives for as long as it, or an error
            that was raised because of it, is on its way to the caller.
    """

    def __init__(self, when_deleted: Callable[[], None]) -> None:
        super().__init__()
        self.when_deleted = when_deleted

    def __del__(self) -> None:
        self.when_deleted()


class EndingSignal:
    """The signal that ended the command, once one has arrived."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self.over = False
        """Whether the command has ended, so that nothing is left to interrupt."""
        self._last_s = 0.0

    def receive(self, number: int, _: FrameType | None) -> None:
        """Raises InterruptedBySignal. A second signal right after the first doesn't interrupt the clean-up."""
        now_s = time.monotonic()
        if self.number is None or now_s - self._last_s > AGAIN_S:
            self.number, self._last_s = signal.Signals(number), now_s
            raise InterruptedBySignal(self.send_again)

    def send_again(self) -> None:
        """Sends the signal again, because its exception was deleted before the command had ended: Python swallows
        exceptions in finalizers and in callbacks of weak references, and libraries do while they are imported."""
        number, self.number = self.number, None
        if number is not None and not self.over:
            # Not raised here, because Python would swallow it again.
            threading.Timer(SEND_AGAIN_S, self._send, (number,)).start()

    def _send(self, number: signal.Signals) -> None:
        if not self.over:
            os.kill(os.getpid(), number)

    def hide(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Prints no message about a swallowed InterruptedBySignal. For sys.unraisablehook."""
        if not isinstance(unraisable.exc_value, InterruptedBySignal):
            sys.__unraisablehook__(unraisable)

    @property
    def exit_code(self) -> int:
        return 128 + (self.number or signal.SIGINT)

    @property
    def message(self) -> str:
        """Returns the message for the user."""
        if self.number in (None, signal.SIGINT):
            return "interrupted"
        return f"ended by {self.number.name}; all processes it had started are ended" if self.number else ""


@contextmanager
def ending_signals() -> Iterator[EndingSignal]:
    """Turns signals that end a process into KeyboardInterrupt. A signal that is ignored (nohup) stays ignored."""
    ending = EndingSignal()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    hook, sys.unraisablehook = sys.unraisablehook, ending.hide
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ending.receive)
    try:
        yield ending
    finally:
        ending.over = True
        sys.unraisablehook = hook
        for number, handler in before.items():
            # None means a handler that Python didn't install.
            if handler is not None:
                signal.signal(number, handler)
