"""Starts the command line (`python -m wirecost`, and the installed command)."""

from __future__ import annotations

import signal


def main() -> None:
    """Runs the command line and exits."""
    # Before the command handles signals, and after it has ended, Ctrl-C ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from wirecost.cli import main as run

    run()


if __name__ == "__main__":
    main()
