"""Segment counts of the kernel, and the choice of the congestion control."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.emulation.segments import SNMP, Segments, read_segments
from wirecost.emulation.tcp import set_congestion_control

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
    segments = read_segments(path)
    assert segments == Segments(sent=1200, retransmitted=30)
    assert segments is not None
    assert segments.since(Segments(sent=200, retransmitted=10)) == Segments(sent=1000, retransmitted=20)


@pytest.mark.parametrize("text", ["", "Tcp: OutSegs\n", "Tcp: OutSegs\nTcp: x\n", "Tcp: OutSegs\nTcp: 5\n"])
def test_what_the_kernel_does_not_tell_is_unknown(text: str, tmp_path: Path) -> None:
    path = tmp_path / "snmp"
    path.write_text(text)
    assert read_segments(path) is None
    assert read_segments(tmp_path / "none") is None


@pytest.mark.skipif(not SNMP.exists(), reason="no /proc of Linux here")
def test_this_machine_tells() -> None:
    assert read_segments() is not None


def test_the_first_preferred_control_that_is_permitted_is_used(
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
    assert set_congestion_control(path) == "reno"
    monkeypatch.undo()
    assert set_congestion_control(path) == "cubic"
    assert set_congestion_control(tmp_path / "no" / "such") is None
