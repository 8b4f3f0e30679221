"""The kernel's count of segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.emulation.tcp import SNMP, Segments, read_segments, use_usual_control

TEXT = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm OutSegs RetransSegs InErrs
Tcp: 1 1200 30 0
Udp: InDatagrams
Udp: 7
"""


def test_sent_and_sent_again_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "snmp"
    path.write_text(TEXT)
    found = read_segments(path)
    assert found == Segments(sent=1200, retransmitted=30)
    assert found is not None
    assert found.since(Segments(sent=200, retransmitted=10)) == Segments(sent=1000, retransmitted=20)


@pytest.mark.parametrize("text", ["", "Tcp: OutSegs\n", "Tcp: OutSegs\nTcp: x\n", "Tcp: OutSegs\nTcp: 5\n"])
def test_what_the_kernel_does_not_tell_is_unknown(text: str, tmp_path: Path) -> None:
    path = tmp_path / "snmp"
    path.write_text(text)
    assert read_segments(path) is None
    assert read_segments(tmp_path / "none") is None


@pytest.mark.skipif(not SNMP.exists(), reason="no /proc of Linux here")
def test_this_machine_tells() -> None:
    assert read_segments() is not None


def test_the_first_of_the_usual_controls_that_is_permitted_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "control"
    path.write_text("bbr\n")
    write = Path.write_text

    def permitted(self: Path, text: str) -> int:
        if text == "cubic":
            raise PermissionError(1, "Operation not permitted")
        return write(self, text)

    monkeypatch.setattr(Path, "write_text", permitted)
    assert use_usual_control(path) == "reno"
    monkeypatch.undo()
    assert use_usual_control(path) == "cubic"
    assert use_usual_control(tmp_path / "no" / "such") is None
