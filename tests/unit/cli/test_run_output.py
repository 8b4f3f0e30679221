"""The table of `wirecost run`."""

from __future__ import annotations

import pytest

from wirecost.breakdown import Spread
from wirecost.cli.run_output import show
from wirecost.report import job_rows
from wirecost.report.job_rows import JobRow
from wirecost.study import Status


def test_a_network_on_several_numbers_of_hosts_is_told_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(network: str, hosts: int) -> JobRow:
        spread = Spread.of([1_000_000, 2_000_000, 3_000_000])
        return JobRow("job", network, True, hosts, 2, Status.DONE, None, iteration_ns=spread)

    rows = [row("emulated-1g", 1), row("emulated-1g", 2), row("emulated-60m", 2)]
    monkeypatch.setattr(job_rows, "job_rows", lambda results: rows)
    show([], "text")
    printed = capsys.readouterr().out
    assert "emulated-1g, 1 host " in printed and "emulated-1g, 2 hosts " in printed
    assert "emulated-60m  " in printed
