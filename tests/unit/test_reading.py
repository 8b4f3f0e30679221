"""Whatever path a user names: it is read within bounds, or refused in one line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wirecost import decompression, reading
from wirecost.comparison.sources import load_breakdown
from wirecost.decompression import HEAD_BYTES, DamagedError, decompress
from wirecost.errors import SpecError, WirecostError
from wirecost.ncclog import Transport, read_logs
from wirecost.reading import open_file, read_bytes, read_text
from wirecost.trace import TraceError, read

EDGE = b"alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


def unpacked(data: bytes) -> bytes:
    stream = io.BytesIO(data)
    return b"".join(decompress(stream.read(HEAD_BYTES), stream, "x"))


def special(folder: Path, kind: str) -> Path:
    """A path that is no regular file."""
    if kind == "device":
        return Path("/dev/zero")
    path = folder / kind
    if kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "pipe":
        os.mkfifo(path)
    return path


@pytest.mark.parametrize("kind", ["device", "directory", "socket", "missing", "pipe"])
def test_what_is_no_file_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    path = special(tmp_path, kind)
    with pytest.raises(SpecError) as refusal:
        read_bytes(path, most_bytes=100, pipes=False, error=SpecError)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


COMMANDS = {
    "csv": ("validate", "{}"),
    "calibrate csv": ("calibrate", "{}.csv"),
    "calibration": ("predict", "gpt-1.3b", "--cluster", "dgx-h100", "--gpus", "8", "--calibration", "{}"),
    "cluster": ("predict", "gpt-1.3b", "--cluster", "{}.yaml", "--gpus", "8"),
    "config": ("predict", "{}.json", "--cluster", "dgx-h100"),
    "study": ("study", "run", "{}.yaml", "--dry-run"),
    "trace": ("trace", "{}"),
    "log": ("transport", "{}"),
    "bench": ("bench", "--read", "{}"),
    "recording": ("report", "{}.jsonl"),
    "breakdown": ("compare", "{}", "{}"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("target", ["/dev/zero", "pipe", "/proc/self/pagemap"])
def test_every_reader_refuses_devices_silent_pipes_and_endless_files(
    command: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.fuzzing.oracle import run

    monkeypatch.setattr(reading, "WRITER_S", 0.2)
    path = special(tmp_path, "pipe") if target == "pipe" else Path(target)
    argv = []
    for part in COMMANDS[command]:
        if part.startswith("{}."):  # the ending decides
            link = tmp_path / f"link{part[2:]}"
            link.symlink_to(path)
            argv.append(str(link))
        else:
            argv.append(part.format(path))
    ending = run(argv)
    assert ending.fault is None
    assert ending.code == 2, ending.out[:200]


def test_the_corpus_is_a_regular_file(tmp_path: Path) -> None:
    from wirecost.corpus.text import read_text as read_corpus

    for kind in ("device", "pipe", "socket", "directory"):
        with pytest.raises(SpecError, match=r"data\.corpus: .*"):
            read_corpus(str(special(tmp_path, kind)))
    assert read_corpus("python-docs")


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    path = special(tmp_path, "pipe")

    def write() -> None:
        with path.open("wb") as out:
            out.write(EDGE)
            out.flush()
            time.sleep(0.3)
            out.write(EDGE.replace(b"00/0", b"01/0"))

    thread = threading.Thread(target=write)
    thread.start()
    verdict = read_logs([path])
    thread.join()
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.lines == 2


def test_process_substitution_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(EDGE))
    command = f"{sys.executable} -m wirecost transport <(zcat log.gz) <(cat log.gz)"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Transport: rdma-gdr" in done.stdout and "2 source(s)" in done.stdout


def test_waiting_for_a_pipe_is_said_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(reading, "notify", said.append)
    monkeypatch.setattr(reading, "NOTICE_S", 0.1)
    monkeypatch.setattr(reading, "WRITER_S", 0.3)
    monkeypatch.setattr(reading, "SILENCE_S", 0.5)
    path = special(tmp_path, "pipe")
    with pytest.raises(WirecostError, match=r"pipe: a pipe that nobody opened for writing within"):
        read_logs([path])
    writer = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(WirecostError, match=r"pipe: a pipe that gave nothing within"):
            read_logs([path])
    finally:
        os.close(writer)
    assert len(said) == 2
    assert all(str(path) in line and "waiting" in line for line in said)


def test_a_pipe_that_is_over_before_it_is_opened_gives_what_is_in_it(tmp_path: Path) -> None:
    receiver, sender = os.pipe()
    os.write(sender, b"text")
    os.close(sender)
    with open_file(Path(f"/dev/fd/{receiver}")) as file:
        assert file.read() == b"text"
    os.close(receiver)


def test_bounds_on_size_and_text(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\r\nb\rc" * 10)
    assert read_text(path, most_bytes=60) == "a\nb\nc" * 10
    with pytest.raises(WirecostError, match=r"x: longer than 59 bytes, which no table is"):
        read_text(path, most_bytes=59, what="table")
    path.write_bytes(b"\xff")
    with pytest.raises(WirecostError, match=r"not UTF-8 text \(byte 0\)"):
        read_text(path, most_bytes=59)
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(WirecostError, match="compressed; decompress it first"):
        read_text(path, most_bytes=59)
    os.truncate(path, 1 << 40)  # a sparse file
    with pytest.raises(WirecostError, match="longer than"):
        read_bytes(path, most_bytes=1 << 20)
    with pytest.raises(WirecostError, match="is no path"):
        read_bytes(Path("a\0b"), most_bytes=1)


@pytest.mark.parametrize("kind", PACK)
@given(text=st.binary(max_size=3000), times=st.integers(1, 2000), members=st.integers(1, 3))
def test_what_was_compressed_comes_back(kind: str, text: bytes, times: int, members: int) -> None:
    packed = PACK[kind](text * times)
    assert unpacked(packed * members) == text * times * members


@pytest.mark.parametrize("kind", PACK)
def test_a_cut_stream_gives_what_came_before(kind: str) -> None:
    import random

    text = random.Random(1).randbytes(2_000_000)
    packed = PACK[kind](text)
    stream = io.BytesIO(packed[: len(packed) // 2])
    pieces = []
    with pytest.raises(DamagedError):
        for piece in decompress(stream.read(HEAD_BYTES), stream, "x"):
            pieces.append(piece)
    assert text.startswith(b"".join(pieces))
    assert len(b"".join(pieces)) > 500_000


def bomb(kind: str, size: int) -> bytes:
    """So many zero bytes in as few as the format can."""
    if kind == "zstd":
        # Frame header without content size and checksum, window of 128 KiB; RLE blocks of 128 KiB (RFC 8878, 3.1.1).
        blocks = size >> 17
        block = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
        last = ((1 << 17) << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
        return b"\x28\xb5\x2f\xfd\x00\x38" + block * (blocks - 1) + last
    if kind == "bzip2":
        return bz2.compress(bytes(size >> 3)) * 8
    return PACK[kind](bytes(size))


@pytest.mark.parametrize("kind", ["zstd", "xz", "bzip2"])
def test_a_bomb_is_refused_in_bounded_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "FREE_BYTES", 4 << 20)
    data = bomb(kind, 32 << 20)
    assert len(data) < 64_000
    stream = io.BytesIO(data)
    largest = 0
    with pytest.raises(WirecostError, match="over 1000 times as much: refused"):
        for piece in decompress(stream.read(HEAD_BYTES), stream, "bomb"):
            largest = max(largest, len(piece))
    assert largest < 80 << 20
    for name, reader, error in (("log", read_logs, WirecostError), ("rank0.json", read, TraceError)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(error, match="refused"):
            reader([tmp_path / name])


def test_a_gzip_trace_that_grows_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "FREE_BYTES", 1 << 20)
    monkeypatch.setattr(decompression, "MOST_EXPANSION", 100)
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20)))
    with pytest.raises(TraceError, match="over 100 times as much: refused"):
        read(tmp_path)


def test_holes_of_a_sparse_log_take_no_time(tmp_path: Path) -> None:
    """A log that is cut while its writer goes on starts with a hole as long as what was cut off."""
    path = tmp_path / "nccl.log"
    with path.open("wb") as log:
        log.write(EDGE)
        log.seek(1 << 40)
        log.write(b"\n" + EDGE.replace(b"00/0", b"01/0"))
        log.truncate(1 << 41)
    verdict = read_logs([path])
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.lines < 5
    with open_file(path) as file:
        assert file.read(len(EDGE) + 10) == EDGE + bytes(10)


def test_a_log_that_grows_faster_than_it_is_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_UNSIZED_BYTES", 10_000)
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1000)
    path = tmp_path / "nccl.log"
    path.write_bytes(EDGE * 10)
    readv = os.readv

    def grow(descriptor: int, buffers: list[memoryview]) -> int:
        with path.open("ab") as log:
            log.write(bytes(2000))
        return readv(descriptor, buffers)

    monkeypatch.setattr(os, "readv", grow)
    with open_file(path) as file:
        data = file.read()
    assert data.startswith(EDGE * 10)
    assert 2 * len(EDGE * 10) + 10_000 <= len(data) < 2 * len(EDGE * 10) + 12_000


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ("- < /dev/zero", 2, "standard input: is a device"),
        ("- < /dev/full", 2, "standard input: is a device"),
        ("- 0> written", 2, "standard input: can't be read: Bad file descriptor"),
        ("- < /dev/null", 0, ""),
        ("- < nccl.log", 0, ""),
        ("- < <(cat nccl.log)", 0, ""),
    ],
)
def test_standard_input_is_read_or_refused_in_one_line(
    shell: str, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "nccl.log").write_bytes(EDGE)
    command = f"{sys.executable} -m wirecost transport {shell}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(f"wirecost: {message}" if message else "")
    assert done.stderr.count("\n") == bool(message)


def test_logs_in_a_directory_that_cannot_be_listed_are_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("host0", "host1"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "nccl.log").write_bytes(EDGE)
    scandir = os.scandir

    def scan(path: str) -> object:
        if path.endswith("host1"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(WirecostError, match=r"host1: can't be read: Permission denied"):
        read_logs([tmp_path])


def test_a_breakdown_that_is_endless_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(b'{"schema_version": 1, "source": "measured"')
    os.truncate(path, 1 << 40)
    with pytest.raises(WirecostError, match="longer than 256 MiB"):
        load_breakdown(str(path))
