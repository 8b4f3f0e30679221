"""The notebooks in examples/ run from top to bottom in any directory and show what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_are_four_notebooks() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    source = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", source)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    kept = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(shown) >= 4
    assert shown == kept, "the notebook in the repository was saved without its results"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_no_cell_shows_what_write_text_returned(path: Path) -> None:
    import nbformat

    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    texts = [output.get("data", {}).get("text/plain", "") for cell in cells for output in cell.outputs]
    assert texts
    assert not [text for text in texts if text.isdigit()]
