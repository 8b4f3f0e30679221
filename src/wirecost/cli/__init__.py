"""The command line parses arguments and prints results. Every command is one call into another package.

Each command has its own module here. It imports the packages that it calls inside its function, so that `wirecost
--help` stays fast.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

# Pydantic, which typer imports, searches every installed package for plugins; none is used here.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import typer

from wirecost import reading
from wirecost._version import __version__
from wirecost.address_space import limit_mib, settle_in
from wirecost.cli.former import with_present_names
from wirecost.cli.signals import EndingSignal, ending_signals
from wirecost.cli.standard_streams import STDOUT, flush_output, prepare_streams
from wirecost.cli.usage import Commands
from wirecost.errors import WirecostError
from wirecost.process_limits import explain
from wirecost.storage import StorageError, fault_of, path_of
from wirecost.text import printable

COMMANDS = (
    "demo", "run", "study", "report", "trace", "whatif", "bench", "predict", "plan", "project", "need",
    "calibrate", "validate", "transport", "monitor", "doctor", "compare", "presets", "data",
)  # fmt: skip
"""The commands in the order of the help. A command's module has its name and contains a function of that name or a
group.
"""


_PATH_ERRORS = frozenset(
    (errno.EACCES, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS)
)
"""Error numbers of an unusable path."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wirecost {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def application(only: str | None = None) -> typer.Typer:
    """Returns the command line with all commands or, to start faster, with only one."""
    app = typer.Typer(
        name="wirecost",
        cls=Commands,
        help="What the network costs in large language model training: measured, read from traces, predicted.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in (only,) if only else COMMANDS:
        module = importlib.import_module(f"wirecost.cli.{name}")
        if isinstance(group := getattr(module, "app", None), typer.Typer):
            app.add_typer(group, name=name)
        else:
            # Arguments behind the command to monitor belong to that command.
            settings = {"allow_interspersed_args": False} if name in ("monitor", "run") else None
            app.command(name, context_settings=settings)(getattr(module, name))
    return app


def _asked_for(arguments: Sequence[str]) -> str | None:
    """Returns the command that the first argument names; None without one, or if a shell requests completions."""
    if arguments and arguments[0] in COMMANDS and "_WIRECOST_COMPLETE" not in os.environ:
        return arguments[0]
    return None


def main(argv: list[str] | None = None) -> None:
    """Runs the command line and exits.

    Exit codes: 0 done, 1 ran and failed, 2 refused (one line says why), 128 + N ended by signal N (130: Ctrl-C).
    """
    # Start-up creates many permanent objects. Garbage collection among them would take a sixth of the time.
    gc.set_threshold(50_000, 20, 20)
    warnings.showwarning = _show_warning
    reading.notify = _tell
    closed = prepare_streams()
    with ending_signals() as ending:
        _run(argv, ending, output_closed=STDOUT in closed)


_PYTHONS_OWN = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Prints a warning of wirecost as one line without its place in the code. Python prints other warnings."""
    if category.__module__.startswith("wirecost."):
        _tell(str(message))
    else:
        _PYTHONS_OWN(message, category, *place)


def _run(argv: list[str] | None, ending: EndingSignal, *, output_closed: bool) -> None:
    try:
        settle_in()
        arguments = with_present_names(sys.argv[1:] if argv is None else argv)
        try:
            application(_asked_for(arguments))(args=arguments, prog_name="wirecost")
        except SystemExit as end:
            if not end.code:
                flush_output()
            raise
    except SystemExit as error:
        # The library turns KeyboardInterrupt into this silent exit code. Any other code is the command's: if a
        # launcher ends a job, only its first rank reports it.
        if error.code != 128 + signal.SIGINT:
            raise
        _tell(ending.message)
        sys.exit(ending.exit_code)
    except BaseException as error:  # noqa: BLE001 - `_report` raises again what it doesn't know
        # Other libraries turn KeyboardInterrupt into another error.
        if ending.number is None:
            sys.exit(_report(error, output_closed=output_closed))
        _tell(ending.message)
        sys.exit(ending.exit_code)
    finally:
        # An error that is reported already.
        with suppress(OSError):
            flush_output()


def _report(error: BaseException, *, output_closed: bool) -> int:
    """Prints an error as one line and returns its exit code. Raises an error again that is a defect
    of wirecost.
    """
    if isinstance(error, WirecostError):
        _tell(str(error))
        return error.exit_code
    # The loader reports in this way that memory is too small for a library's code.
    no_room_for_code = isinstance(error, ImportError) and (
        "failed to map segment" in str(error) or "allocate" in str(error)
    )
    no_memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if no_memory or no_room_for_code:
        _tell(_out_of_memory())
    elif (limit := explain(error)) is not None:
        _tell(limit)
    elif isinstance(error, OSError) and error.errno == errno.EBADF and output_closed:
        _tell("can't write the output: standard output is closed")
    elif isinstance(error, OSError) and (fault := fault_of(error)) is not None:
        path = path_of(error)
        # Standard output has no file name.
        _tell(
            f"can't write the output: {error.strerror}" if path is None else str(StorageError(path[:300], fault))
        )
    elif isinstance(error, OSError) and error.errno in _PATH_ERRORS and error.filename is not None:
        _tell(f"{os.fsdecode(error.filename)[:300]}: {error.strerror}")
        return WirecostError.exit_code
    else:
        raise error
    return 1


def _tell(line: str) -> None:
    # Standard error may be on a full disk or a closed terminal; the exit code remains.
    with suppress(OSError):
        typer.echo(f"wirecost: {printable(line)}", err=True)


def _out_of_memory() -> str:
    limit = limit_mib()
    if limit is None:
        return "out of memory"
    return f"out of memory: the address space is limited to {limit} MiB (ulimit -v); raise the limit"
