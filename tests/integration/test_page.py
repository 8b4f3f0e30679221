"""The page in a real browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.planning import answered
from support.results import invented_store
from wirecost.planner.page import render_page
from wirecost.report import read_report
from wirecost.report.page import write_page
from wirecost.study import Status
from wirecost.study.store import Outcome

CHROMIUM = [
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.mark.needs_chromium
def test_the_page_shows_its_tables_and_charts_offline(tmp_path: Path) -> None:
    hostile = Outcome(status=Status.FAILED, reason="<script>document.title='owned'</script>")
    invented_store(tmp_path / "store", outcomes={0: hostile})
    page = write_page(read_report(tmp_path / "store"), tmp_path / "page.html")
    run = subprocess.run(
        [
            *CHROMIUM,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=3000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    dom = run.stdout
    assert "<title>invented - wirecost</title>" in dom
    assert dom.count("<svg") == 2
    assert "gradient sync" in dom
    assert dom.count('class="n heat"') == 15
    assert "&lt;script&gt;document.title" in dom


@pytest.mark.needs_chromium
def test_the_page_of_plans_explains_two_that_are_picked(tmp_path: Path) -> None:
    result = answered("llama-3-8b", "dgx-h100", 16, 64)
    text = render_page(result, {}).replace("filters();\napply();", "filters();\napply();\npick(0);\npick(1);")
    (tmp_path / "page.html").write_text(text)
    run = subprocess.run(
        [
            *CHROMIUM,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=3000",
            "--dump-dom",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"{len(result.found)} of {len(result.found)} plans are shown." in run.stdout
    assert "times as long, 90 % interval" in run.stdout
    assert run.stdout.count("<select>") >= 8
    assert "tensor parallel" in run.stdout
