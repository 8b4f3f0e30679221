from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.pages import Page
from support.planning import answered, small_model
from wirecost.errors import WirecostError
from wirecost.planner.page import render_page, write_page
from wirecost.planner.page.data import MOST_PLANS, page_data, shown_places


def test_the_page_has_every_plan_and_no_outside_resource() -> None:
    result = answered()
    page = Page(render_page(result, {"precision": "bf16"}))
    assert not page.handlers
    assert "link" not in page.tags and "img" not in page.tags
    data = json.loads(page.scripts[0])
    assert len(data["time"]) == len(result.found)
    assert data["time"] == sorted(data["time"])
    assert len(data["parts"]) == len(data["part_names"])
    assert sum(part[0] for part in data["parts"]) == pytest.approx(data["time"][0], rel=1e-4)


def test_names_from_files_are_escaped() -> None:
    result = answered(small_model(source="</script><script>alert(1)</script>"), gpus=4, batch=4)
    text = render_page(result, {"</script><b>": "<img src=x onerror=alert(1)>"})
    page = Page(text)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags and "b" not in page.tags


def test_a_large_search_keeps_the_fastest_and_the_front() -> None:
    result = answered("deepseek-v3", "dgx-h100", 1024, 4096)
    places = shown_places(result)
    assert len(result.found) > MOST_PLANS >= len(places)
    assert set(result.pareto) <= set(places.tolist())
    assert {ranked.place for ranked in result.ranked} <= set(places.tolist())
    data = page_data(result)
    assert data["total"] == len(result.found)
    assert len(json.dumps(data)) < 6e6


def test_a_page_replaces_no_link_and_no_directory(tmp_path: Path) -> None:
    result = answered(small_model(), gpus=4, batch=4)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("link", "."):
        with pytest.raises(WirecostError, match="no regular file"):
            write_page(result, {}, tmp_path / name)
    (tmp_path / "cluster.yaml").write_text("gpu: H100-SXM-80GB\n")
    with pytest.raises(WirecostError, match="is no page"):
        write_page(result, {}, tmp_path / "cluster.yaml")
    for _ in range(2):
        write_page(result, {}, tmp_path / "page.html")
    assert re.search(r"<canvas", (tmp_path / "page.html").read_text())


def test_without_a_plan_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(WirecostError, match="no plan fits"):
        write_page(answered("llama-3-70b", gpus=8), {}, tmp_path / "page.html")
