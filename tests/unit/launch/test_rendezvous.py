"""Ranks that agree on a port, and those that meet at one."""

from __future__ import annotations

import datetime
import socket
import threading
from pathlib import Path

import pytest

from wirecost.launch.rendezvous import MEETING, agree_on_port, free_port_of, meet


def test_the_others_wait_for_the_port_of_rank_0(tmp_path: Path) -> None:
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(agree_on_port(tmp_path, "1-0", None, 60.0)))
    waiting.start()
    agree_on_port(tmp_path, "of-another-step", 1, 60.0)
    port = free_port_of(tmp_path, "1-0", first=True)
    waiting.join()
    assert found == [port]
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


def test_a_port_that_rank_0_never_writes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="rank 0 did not write its port"):
        agree_on_port(tmp_path, "1-0", None, 0.0)


def test_ranks_meet_although_the_launchers_port_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        values = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": used.getsockname()[1]}
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(OSError, match="in use"):
            meet(datetime.timedelta(seconds=60), tmp_path)
        monkeypatch.setenv(MEETING, "1-0")
        store = meet(datetime.timedelta(seconds=60), tmp_path)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert list(tmp_path.iterdir()) == []
