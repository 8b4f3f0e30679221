"""Standard streams that are closed when a command starts, full, or non-blocking."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import resource
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import pytest

from support.fuzzing.kinds import MEASURED

LOG = b"alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
COMMANDS = {
    "presets": ("presets",),
    "transport": ("transport", "nccl.log"),
    "transport as JSON": ("transport", "nccl.log", "--format", "json"),
    "predict": ("predict", "gpt-1.3b", "--cluster", "dgx-h100", "--gpus", "8"),
    "monitor": ("monitor", "--for", "50ms"),
}


BUFFERING = [{}, {"PYTHONUNBUFFERED": "1"}]
ROWS = 600


def environment(buffering: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"} | buffering


def run(
    folder: Path, closed: tuple[int, ...], *argv: str, buffering: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    (folder / "nccl.log").write_bytes(LOG)
    command = [sys.executable, "-m", "wirecost", *argv]

    def close() -> None:
        for number in closed:
            os.close(number)

    return subprocess.run(
        command,
        cwd=folder,
        env=environment(buffering or {}),
        preexec_fn=close,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("buffering", BUFFERING)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_without_standard_output_is_no_success(
    command: str, buffering: dict[str, str], tmp_path: Path
) -> None:
    done = run(tmp_path, (1,), *COMMANDS[command], buffering=buffering)
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
        "from wirecost.cli.standard_streams import prepare_streams\n"
        "assert prepare_streams() == {0, 1, 2}\n"
        "file = open('result', 'wb')\n"
        "os.system('echo from a child; echo from a child >&2')\n"
        "os.write(2, b'from this process')\n"
    )

    def close() -> None:
        os.closerange(0, 3)

    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, preexec_fn=close, check=True)
    assert (tmp_path / "result").read_bytes() == b""


def write_table(folder: Path) -> list[str]:
    """Writes a table, and returns the command that prints more of it than a pipe or a page takes."""
    rows = [{**MEASURED, "id": f"row {number}"} for number in range(ROWS)]
    with (folder / "t.csv").open("w") as file:
        writer = csv.DictWriter(file, list(MEASURED))
        writer.writeheader()
        writer.writerows(rows)
    return [sys.executable, "-m", "wirecost", "validate", "t.csv", "--format", "json"]


@pytest.mark.parametrize("buffering", BUFFERING)
def test_a_full_disk_is_one_line(buffering: dict[str, str], tmp_path: Path) -> None:
    """Without Python's buffer a write that took a part only would count as whole."""
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            write_table(tmp_path),
            cwd=tmp_path,
            env=environment(buffering),
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (10_000, 10_000)),
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (tmp_path / "out").stat().st_size == 10_000
    assert done.returncode == 1
    assert done.stderr == b"wirecost: can't write the output: File too large\n"
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "wirecost", "presets"]
        done = subprocess.run(
            command, env=environment(buffering), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"wirecost: can't write the output: No space left on device\n"


def wait_until_full(pipe: int, process: subprocess.Popen[bytes]) -> None:
    capacity = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    while process.poll() is None:
        (waiting,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
        if waiting == capacity:
            return
        time.sleep(0.02)


@pytest.mark.parametrize("buffering", BUFFERING)
def test_a_pipe_that_is_non_blocking_gets_everything(buffering: dict[str, str], tmp_path: Path) -> None:
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    process = subprocess.Popen(
        write_table(tmp_path), cwd=tmp_path, env=environment(buffering), stdout=sender, stderr=subprocess.PIPE
    )
    os.close(sender)
    wait_until_full(receiver, process)
    with open(receiver, "rb") as file:
        text = file.read()
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert len(text) > 1 << 16
    assert len(json.loads(text)["rows"]) == ROWS


@pytest.mark.parametrize("buffering", BUFFERING)
def test_a_full_disk_under_standard_error_changes_no_answer(buffering: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "nccl.log").write_bytes(LOG)
    (tmp_path / "osu.txt").write_text(
        "# OSU MPI Allreduce Latency Test v7.5\n# Size Avg Latency(us)\n4 1.5\n8 x\n"
    )
    command = [sys.executable, "-m", "wirecost"]
    codes, answers = [], []
    for argv in (["transport", "nccl.log"], ["transport", "none.log"], ["bench", "--read", "osu.txt"]):
        for place in ("/dev/null", "/dev/full"):
            with Path(place).open("wb") as stderr:
                done = subprocess.run(
                    [*command, *argv], cwd=tmp_path, env=environment(buffering),
                    stdout=subprocess.PIPE, stderr=stderr, check=False,
                )  # fmt: skip
            codes.append(done.returncode)
            answers.append(done.stdout)
    assert codes[::2] == codes[1::2]
    assert codes[:4:2] == [0, 2]
    assert answers[::2] == answers[1::2]
