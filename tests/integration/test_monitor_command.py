"""`wirecost monitor` around a command: exit codes, signals, output, files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.commands import wirecost_here
from wirecost.counters import read_jsonl, recording

MONITOR = [sys.executable, "-m", "wirecost", "monitor"]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MONITOR, *arguments], capture_output=True, text=True, check=False, timeout=60)


def shell(*arguments: str, script: str) -> subprocess.CompletedProcess[str]:
    return call(*arguments, "--", "sh", "-c", script)


def test_exit_code_and_output_of_the_command_pass_through() -> None:
    done = shell("-q", script="echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert shell("-q", script="true").returncode == 0
    assert shell("-q", script="kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_options_after_the_command_are_the_command_s() -> None:
    done = call("-q", "sh", "-c", "echo $0 $1", "--every", "--out")
    assert done.stdout == "--every --out\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_reach_the_command(name: str, tmp_path: Path) -> None:
    """The command gets the signal that the monitor got, ends as it likes, and its samples are all there."""
    number = signal.Signals[name]
    out = tmp_path / "samples.jsonl"
    script = f"trap 'echo got {name}; exit 9' {name.removeprefix('SIG')}; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [*MONITOR, "-q", "--every", "10ms", "--out", str(out), "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.read() == f"got {name}\n"
    assert process.wait(30) == 9
    assert list(read_jsonl(out))


def test_the_command_starts_with_no_signal_blocked() -> None:
    done = call("-q", "--", "grep", "SigBlk", "/proc/self/status")
    assert int(done.stdout.split()[1], 16) == 0


def test_without_a_command_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        out = tmp_path / f"{number}.parquet"
        process = subprocess.Popen(
            [*MONITOR, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "recording\n"
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "samples" in error and "lo" in error
        assert out.exists() and not (tmp_path / f"{number}.parquet.partial.jsonl").exists()
    assert len(list(tmp_path.glob("*.parquet"))) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--every", "100"], "100ms"),
        (["--every", "0s"], "100ms"),
        (["--every", "1us"], "1ms is the least"),
        (["--out", "x.csv", "--for", "1s"], ".jsonl or .parquet"),
        (["--prometheus", "none"], "no port"),
        (["--prometheus", "99999"], "no port"),
        (["--", "no-such-program"], "no such program"),
        (["--for", "1s", "--", "true"], "exclude each other"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = wirecost_here("monitor", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_recording_and_not_the_command(tmp_path: Path) -> None:
    full = tmp_path / "full.jsonl"
    full.symlink_to("/dev/full")
    done = call("-q", "--every", "10ms", "--out", str(full), "--", "sh", "-c", "sleep 0.2; echo done; exit 4")
    assert (done.returncode, done.stdout) == (4, "done\n")
    assert done.stderr.startswith(
        f"wirecost: the recording ended early: {full}: can't be written: No space left on device; make room there"
    )
    assert done.stderr.count("\n") == 1
    assert call("-q", "--for", "50ms", "--out", str(full)).returncode == 2


def test_recording_in_a_process_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    before = time.monotonic_ns()
    with recording(out, every_ns=20_000_000):
        time.sleep(0.1)
    rows = list(read_jsonl(out))
    assert rows and all(before <= r.t_ns <= time.monotonic_ns() for r in rows)


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys, wirecost.counters as c; s = c.Sampler(); s.sample(); s.stop(); "
        "heavy = ('polars', 'pyarrow', 'altair', 'rich', 'numpy', 'pydantic', 'torch', 'prometheus_client'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_filter_that_matches_nothing_is_refused_before_the_command_starts(tmp_path: Path) -> None:
    done = shell("--only", "eth99", script=f"touch {tmp_path}/started")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--only 'eth99' matches no device; devices here: " in done.stderr and "lo" in done.stderr
    assert not (tmp_path / "started").exists()


def test_one_of_several_filters_may_match_nothing() -> None:
    done = shell("--quiet", "--only", "lo", "--only", "mlx5_*", script="exit 3")
    assert done.returncode == 3
    assert done.stderr.startswith(
        "warning filter_matches_nothing: --only 'mlx5_*' matches no device; devices here: "
    )
