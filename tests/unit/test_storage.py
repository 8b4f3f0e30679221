"""Faults of the storage: recognised wherever they come from, told by exit code, and said with what to do."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import SpecError, UnsupportedError, WirecostError
from wirecost.storage import (
    FAULTS,
    MAPPED,
    TEMPORARY,
    UNKNOWN,
    LineFile,
    StorageError,
    check_room,
    check_writable,
    exit_code_of,
    fault_of,
    fault_of_exit,
    naming,
    path_of,
    write_file,
)

NO_ROOM = FAULTS[errno.ENOSPC]


class CheckpointException(BaseException):
    """As PyTorch's: the errors of all ranks, by rank."""

    def __init__(self, failures: dict[int, tuple[BaseException, object]]) -> None:
        super().__init__("failed")
        self.failures = failures


def raised_from(cause: BaseException, *, implicitly: bool = False) -> BaseException:
    try:
        try:
            raise cause
        except BaseException as error:
            if implicitly:
                raise ValueError("later")  # noqa: B904 - what is tested
            raise RuntimeError("wrapped") from error
    except (ValueError, RuntimeError) as error:
        return error


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_every_number_is_recognised_in_every_wrapping_and_by_its_exit_code(number: int) -> None:
    plain = OSError(number, os.strerror(number), "/data/samples")
    wrapped = [
        plain,
        StorageError("/data/samples", FAULTS[number]),
        raised_from(plain),
        raised_from(plain, implicitly=True),
        BaseExceptionGroup("several", [ValueError("another"), plain]),
        CheckpointException({0: (ValueError("another"), None), 1: (plain, None)}),
    ]
    for error in wrapped:
        assert fault_of(error) == FAULTS[number], error
        assert path_of(error) == "/data/samples"
        assert fault_of_exit(exit_code_of(error)) == FAULTS[number]
    assert fault_of(RuntimeError(f"[enforce fail] {os.strerror(number)}")) == FAULTS[number]


def test_what_is_no_fault_of_the_storage_is_left_alone() -> None:
    no_namespace = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        raise UnsupportedError("too many namespaces: No space left on device") from no_namespace
    except UnsupportedError as error:
        refused = error
    for error in (
        refused,
        SpecError("data.corpus: No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        RuntimeError("CUDA out of memory"),
    ):
        assert fault_of(error) is None, error
        assert exit_code_of(error) is None
    for code in (None, 0, 1, 2, 3, 99, 120, 127, 137, -9, -11):
        assert fault_of_exit(code) is None, code


def test_exit_codes_are_distinct_and_no_others() -> None:
    codes = [fault.exit_code for fault in (*FAULTS.values(), MAPPED, TEMPORARY, UNKNOWN)]
    assert len(set(codes)) == len(codes) == 10
    assert all(100 <= code < 120 for code in codes)
    assert fault_of_exit(-signal.SIGBUS) == fault_of_exit(128 + signal.SIGBUS) == MAPPED


def test_no_temporary_directory_says_which_to_name() -> None:
    error = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    assert fault_of(error) == TEMPORARY
    assert "TMPDIR" in TEMPORARY.remedy


def test_a_tensor_that_pytorch_could_not_write_is_no_failure_of_training(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with Path("/dev/full").open("wb", buffering=0) as stream:
        for target in ("/dev/full", stream):
            with pytest.raises((RuntimeError, OSError)) as refusal:
                torch.save(torch.zeros(1 << 16), target)
            assert fault_of(refusal.value) in (UNKNOWN, NO_ROOM), refusal.value


def test_the_message_says_where_what_and_what_to_do() -> None:
    error = StorageError("/data/x", NO_ROOM)
    assert isinstance(error, WirecostError)
    assert str(error) == (
        "/data/x: can't be written: No space left on device; make room there (df -h and df -i show what is left)"
    )
    remedies = [fault.remedy for fault in FAULTS.values()]
    assert len(remedies) == 7
    assert all(remedy and "\n" not in remedy for remedy in remedies)


def test_writing_to_a_full_device_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as refusal, naming(tmp_path / "x"):
        os.write(os.open("/dev/full", os.O_WRONLY), b"x")
    assert path_of(refusal.value) == str(tmp_path / "x")


def test_a_file_that_cannot_be_replaced_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_file(path, "before")
    (tmp_path / ".a.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as refusal:
        write_file(path, "after")
    assert refusal.value.filename == str(path)
    assert path.read_text() == "before"
    write_file(path, "af", b"t", memoryview(b"er"))
    assert path.read_text() == "after"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@given(lines=st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126)), max_size=20))
def test_lines_are_there_once_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines"
    with LineFile(path) as file:
        for number, line in enumerate(lines):
            file.write(line)
            assert path.read_bytes().count(b"\n") == number + 1
    assert path.read_text() == "".join(f"{line}\n" for line in lines)


def test_a_file_that_lost_lines_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with pytest.raises(OSError, match="Input/output error") as refusal, LineFile(path) as file:
        file.write("one")
        file.write("two")
        os.truncate(path, 4)
        file.write("three")
    assert refusal.value.filename == str(path)
    # What ended the writing is told, not what was lost by it.
    with pytest.raises(LookupError), LineFile(path) as file:
        file.write("one")
        os.truncate(path, 0)
        raise LookupError


def test_a_directory_with_room_can_be_written(tmp_path: Path) -> None:
    check_room(tmp_path)
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        check_room(tmp_path / "gone")


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"f_bfree": 0, "f_bavail": 0}, errno.ENOSPC),
        ({"f_ffree": 0, "f_favail": 0}, errno.ENOSPC),
        ({"f_flag": os.ST_RDONLY}, errno.EROFS),
        ({"f_blocks": 0, "f_bfree": 0, "f_bavail": 0, "f_files": 0, "f_ffree": 0, "f_favail": 0}, None),
    ],
)
def test_what_the_file_system_says_of_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], number: int | None
) -> None:
    real = os.statvfs(tmp_path)
    names = [n for n in dir(real) if n.startswith("f_")]
    state = type("State", (), {**{n: getattr(real, n) for n in names}, **changes})
    monkeypatch.setattr(os, "statvfs", lambda _: state)
    if number is None:
        check_room(tmp_path)
        return
    with pytest.raises(StorageError) as refusal:
        check_room(tmp_path)
    assert refusal.value.fault == FAULTS[number]


def test_room_that_is_kept_for_root_is_room_for_root_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    names = [n for n in dir(real) if n.startswith("f_")]
    state = type("State", (), {**{n: getattr(real, n) for n in names}, "f_bavail": 0, "f_bfree": 5})
    monkeypatch.setattr(os, "statvfs", lambda _: state)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_room(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StorageError):
        check_room(tmp_path)


def test_an_interrupted_write_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    write_file(tmp_path / "file", "before")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", "after")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
