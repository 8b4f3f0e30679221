"""Standard streams that are closed when a command starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOG = b"alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
COMMANDS = {
    "presets": ("presets",),
    "transport": ("transport", "nccl.log"),
    "transport as JSON": ("transport", "nccl.log", "--format", "json"),
    "predict": ("predict", "gpt-1.3b", "--cluster", "dgx-h100", "--gpus", "8"),
    "monitor": ("monitor", "--for", "50ms"),
}


def run(folder: Path, closed: tuple[int, ...], *argv: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "nccl.log").write_bytes(LOG)
    command = [sys.executable, "-m", "wirecost", *argv]

    def close() -> None:
        for number in closed:
            os.close(number)

    return subprocess.run(command, cwd=folder, preexec_fn=close, capture_output=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_without_standard_output_is_no_success(command: str, tmp_path: Path) -> None:
    done = run(tmp_path, (1,), *COMMANDS[command])
    assert done.returncode == 1
    assert done.stderr == b"wirecost: can't write the output: standard output is closed\n"


@pytest.mark.parametrize("command", ["transport", "predict"])
def test_without_any_stream_the_exit_code_remains(command: str, tmp_path: Path) -> None:
    assert run(tmp_path, (0, 1, 2), *COMMANDS[command]).returncode == 1
    assert run(tmp_path, (0, 2), *COMMANDS[command]).returncode == 0
    assert run(tmp_path, (0, 1, 2), "transport", "none.log").returncode == 2


def test_closed_standard_input_is_empty(tmp_path: Path) -> None:
    done = run(tmp_path, (0,), "transport", "-")
    assert b"the input is empty" in done.stdout
    assert done.stderr == b""


def test_messages_go_into_no_file_of_the_command(tmp_path: Path) -> None:
    """Descriptors 1 and 2 would be those of the first files that the command opens."""
    code = (
        "import os\n"
        "from wirecost.cli.standard_streams import open_closed_streams\n"
        "assert open_closed_streams() == {0, 1, 2}\n"
        "file = open('result', 'wb')\n"
        "os.system('echo from a child; echo from a child >&2')\n"
        "os.write(2, b'from this process')\n"
    )

    def close() -> None:
        os.closerange(0, 3)

    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, preexec_fn=close, check=True)
    assert (tmp_path / "result").read_bytes() == b""
