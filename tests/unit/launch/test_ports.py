"""Ports for ranks to meet on."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.launch.ports import free_port


@pytest.mark.parametrize("handed_out", ["10100 65535", "1024 60999", "32768 60999"])
def test_a_port_is_none_that_the_kernel_hands_out(handed_out: str, tmp_path: Path) -> None:
    ports = tmp_path / "range"
    ports.write_text(handed_out.replace(" ", "\t") + "\n")
    first, last = map(int, handed_out.split())
    found = {free_port(ports) for _ in range(20)}
    assert all(10_000 <= port < 65_536 and not first <= port <= last for port in found)
    assert len(found) > 10  # ranks that start at the same time don't meet on one


def test_where_all_ports_are_handed_out_any_will_do(tmp_path: Path) -> None:
    ports = tmp_path / "range"
    ports.write_text("1024\t65535\n")
    assert free_port(ports) >= 10_000
    ports.write_text("10003\t65533\n")  # a few are left, too few to choose from
    assert free_port(ports) >= 10_000
    assert not 32768 <= free_port(tmp_path / "missing") <= 60999
