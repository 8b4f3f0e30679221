"""Draws Vega-Lite charts as PNG and SVG in a process of its own.

The drawing library contains a JavaScript engine, which terminates its whole process when memory runs out. In a
child process this becomes an error in one line, and the parent keeps its results.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from wirecost.address_space import limit_mib
from wirecost.errors import UnsupportedError

Format = Literal["png", "svg"]
LONGEST_S = 600.0
PNG_SCALE = 2
_LENGTH_BYTES = 8


def render(jobs: Sequence[tuple[str, Format]]) -> list[bytes]:
    """Returns each chart, given as a Vega-Lite specification in JSON, in the format asked for.

    Raises:
        UnsupportedError: if the drawing process fails, dies or takes longer than `LONGEST_S`.
    """
    package = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (package, environment.get("PYTHONPATH", "")) if p)
    message = b"".join(
        format.encode() + len(spec.encode()).to_bytes(_LENGTH_BYTES, "big") + spec.encode()
        for spec, format in jobs
    )
    try:
        # -P: modules are never imported from the current folder.
        child = subprocess.run(
            [sys.executable, "-P", "-m", "wirecost.report.rendering"],
            input=message,
            capture_output=True,
            env=environment,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(
            f"the figures were not drawn within {LONGEST_S:.0f} s; leave figures out"
        ) from error
    except OSError as error:
        raise UnsupportedError(f"figures can't be drawn: {error.strerror}") from error
    if child.returncode != 0:
        raise UnsupportedError(f"figures can't be drawn: {_reason(child.returncode, child.stderr)}")
    return _split(child.stdout)


def _reason(code: int, stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1].strip()[:200] if lines else ""
    ended = (
        f"the drawing process ended by {signal.Signals(-code).name}" if code < 0 else last or f"exit code {code}"
    )
    if (limit := limit_mib()) is not None:
        return f"{ended}; the address space is limited to {limit} MiB (ulimit -v): raise the limit"
    return f"{ended}; out of memory?" if code < 0 else ended


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _split(data: bytes) -> list[bytes]:
    drawn, at = [], 0
    while at < len(data):
        end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
        drawn.append(data[at + _LENGTH_BYTES : end])
        at = end
    return drawn


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Draws the requests in order; runs in the child process."""
    import vl_convert

    last_spec, svg = None, ""
    while kind := requests.read(3):
        spec = requests.read(int.from_bytes(requests.read(_LENGTH_BYTES), "big")).decode()
        if spec != last_spec:  # a chart that is requested in both formats is laid out once
            last_spec, svg = spec, vl_convert.vegalite_to_svg(spec)
        drawn = svg.encode() if kind == b"svg" else vl_convert.svg_to_png(svg, scale=PNG_SCALE)
        answers.write(_framed(drawn))
    answers.flush()


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    except Exception as error:  # noqa: BLE001 - the parent puts it into one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
