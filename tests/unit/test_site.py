"""The documentation site: its pages are all in the navigation, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

import site_links
import wirecost

ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def _navigation(entries: list[Any]) -> list[str]:
    pages: list[str] = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            pages += _navigation(value) if isinstance(value, list) else [value]
    return pages


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert sorted(_navigation(CONFIG["nav"])) == sorted(pages)


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_links_of_the_readme_lead_to_files() -> None:
    checked = 0
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "results").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"
                checked += 1
    assert checked > 10


def test_files_that_contributing_names_for_changes_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.split("## Where a change belongs\n")[1].split("\n## ")[0]
    checked = 0
    for row in section.splitlines():
        folder = ROOT / "src" / "wirecost"
        for name in re.findall(r"`([\w./]+(?:/|\.py))`", row) if row.startswith("|") else []:
            if name.startswith(("scripts/", "tests/")):
                path = ROOT / name
            elif name == "cli/NAME.py":
                continue
            else:
                path = ROOT / "src" / "wirecost" / name
                if "/" not in name:
                    path = folder / name  # beside the file that the row names before it
                folder = path if name.endswith("/") else path.parent
            assert path.exists(), f"{name} in {row}"
            checked += 1
    assert checked > 40


def _rewritten(text: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(ROOT / "docs" / "how-to" / "study.md")))
    config = {
        "config_file_path": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(ROOT / "docs"),
        "extra": CONFIG["extra"],
    }
    return site_links.on_page_markdown(text, page=page, config=config, files=None)


def test_links_out_of_the_docs_lead_to_the_repository() -> None:
    repository = "https://github.com/wirecost/wirecost"
    assert _rewritten("[a](../../README.md#b)") == f"[a]({repository}/blob/main/README.md#b)"
    assert _rewritten("[a](../../results) and [c](../../LICENSE)") == (
        f"[a]({repository}/tree/main/results) and [c]({repository}/blob/main/LICENSE)"
    )


def test_links_inside_the_docs_and_code_stay() -> None:
    for text in (
        "[a](train.md#b)",
        "![a](../figures/a.svg)",
        "[a](https://example.org/x)",
        "[a](#here)",
        "```\n[a](../../README.md)\n```",
    ):
        assert _rewritten(text) == text


def test_a_link_to_a_missing_file_is_a_warning(caplog: Any) -> None:
    _rewritten("[a](../../no-such-file.md)")
    assert "no-such-file.md" in caplog.text


def test_no_page_loads_anything_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert "repo_url" not in CONFIG  # the theme would ask the host for the number of stars
    assert not {"extra_javascript", "extra_css"} & set(CONFIG)
    pages = 0
    for page in (ROOT / "docs").rglob("*.md"):
        pages += 1
        assert not re.search(r"!\[[^\]]*\]\(https?:|<script|<img|<iframe", page.read_text()), page
    assert pages > 20


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    shown = re.findall(r"^::: wirecost\.(\w+)$", page, re.M)
    assert sorted(shown) == sorted(set(wirecost.__all__) - {"__version__"})
