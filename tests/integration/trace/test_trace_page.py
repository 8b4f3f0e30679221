"""The page of traces in a real browser: what it paints, sums up and finds."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from support.tracefiles import Writer, write_job
from wirecost.trace import read
from wirecost.trace.html import render_html

pytestmark = pytest.mark.needs_chromium


def browse(page: str, folder: Path, script: str, *options: str) -> Any:
    """What a script that runs after those of the page gives, as JSON."""
    code = f"document.body.dataset.result = JSON.stringify((() => {{ {script} }})());"
    path = folder / "page.html"
    path.write_text(page.replace("</body>", f"<script>{code}</script></body>"))
    run = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-sync", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000", "--dump-dom",
            *(options or ("--window-size=1200,900",)), path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'data-result="([^"]*)"', run.stdout)
    assert found is not None, run.stderr[-500:]
    assert 'data-ready="yes"' in run.stdout
    return json.loads(unescape(found[1]))


def page_of(folder: Path) -> str:
    return render_html(read(folder, timeline=True))


PAINTED = """
  const wanted = colors[NAME].match(/\\w\\w/g).map(h => parseInt(h, 16)), scale = window.devicePixelRatio;
  const left = Math.ceil(x(data.ranks[0].start)) + 1, right = Math.floor(x(data.ranks[0].end)) - 1;
  const image = ctx.getImageData(left * scale, (AXIS + GAP / 2) * scale, (right - left) * scale, STRIP * scale).data;
  let painted = 0;
  for (let i = 0; i < image.length; i += 4) painted += wanted.every((c, k) => Math.abs(image[i + k] - c) < 3);
  return painted / (image.length / 4);
"""


def test_idle_is_never_painted_as_work(tmp_path: Path) -> None:
    """20,000 kernels of 2 us, one every 10 us: a fifth of the strip is painted, however many share a pixel."""
    writer = Writer()
    for k in range(20_000):
        writer.complete("kernel", "gemm", 0, 7, 1_000_000 + 10_000 * k, 2_000, {"stream": 7})
    (tmp_path / "rank0.json").write_bytes(writer.text({"rank": 0, "world_size": 1}, 0))
    share = browse(page_of(tmp_path), tmp_path, PAINTED.replace("NAME", '"compute"'))
    assert share == pytest.approx(0.2, abs=0.02)


def test_a_selection_sums_up_what_it_covers(tmp_path: Path) -> None:
    write_job(tmp_path, 3, 4, late=1)
    traces = read(tmp_path, timeline=True)
    script = """
      select(0, END, 0, data.ranks.length - 1);
      return {shown: panel.textContent, parts: data.ranks.map(r => within(r, 0, END).parts)};
    """
    found = browse(render_html(traces), tmp_path, script)
    assert len(found["parts"]) == 3
    for parts, trace in zip(found["parts"], traces.traces, strict=True):
        p = trace.parts
        assert p is not None
        assert parts == {
            "compute": p.compute_only_ns, "overlapped": p.overlapped_ns, "exposed": p.exposed_comm_ns,
            "memory": p.exposed_memory_ns, "idle": p.idle_ns,
        }  # fmt: skip
    assert "rank 0 to rank 2" in found["shown"] and "ncclDevKernel_AllReduce" in found["shown"]


def test_search_finds_kernels_and_collectives(tmp_path: Path) -> None:
    write_job(tmp_path, 2, 5)
    script = """
      const counts = {};
      for (const query of ["all_reduce", "TRITON", "no such"]) { box.value = query; search(); counts[query] = matches.length; }
      box.value = "nccl"; search(); go(1);
      return {counts, rows: body.rows.length, selected: selection !== null, dimmed: wanted.size < data.names.length};
    """
    found = browse(page_of(tmp_path), tmp_path, script)
    assert found == {
        "counts": {"all_reduce": 10, "TRITON": 10, "no such": 0}, "rows": 1, "selected": True, "dimmed": True,
    }  # fmt: skip


def test_a_finding_leads_to_its_place(tmp_path: Path) -> None:
    write_job(tmp_path, 4, 4, late=2)
    script = """
      const button = document.querySelector("button.go"); button.click();
      const inside = view[0] <= Number(button.dataset.from) && Number(button.dataset.to) <= view[1];
      return {inside, narrower: view[1] - view[0] < END, from: selection.from === Number(button.dataset.from),
              steps: [...chooser.options].map(o => o.text)};
    """
    found = browse(page_of(tmp_path), tmp_path, script)
    assert found == {
        "inside": True, "narrower": True, "from": True, "steps": ["all", *(f"ProfilerStep#{n}" for n in range(3, 7))],
    }  # fmt: skip


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    write_job(tmp_path, 12, 3)
    # Headless windows have a least width; a frame has none.
    script = """
      const wide = [...document.querySelectorAll("main, header, section, .bars, #scroll, .bar-tools, .answer")]
        .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "visible");
      return wide.map(e => e.className || e.tagName);
    """
    narrow = page_of(tmp_path).replace("<body>", f'<body style="width:{width}px">')
    assert browse(narrow, tmp_path, script, f"--window-size={width},800") == []


def test_it_is_dark_where_the_reader_wants_that(tmp_path: Path) -> None:
    write_job(tmp_path, 2, 2)
    script = "return getComputedStyle(document.body).backgroundColor;"
    light = browse(page_of(tmp_path), tmp_path, script)
    dark = browse(
        page_of(tmp_path), tmp_path, script, "--window-size=900,700", "--blink-settings=preferredColorScheme=0"
    )
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 21, 26)")
