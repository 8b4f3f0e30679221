"""The recipe of the documentation records traces in which `wirecost trace` finds the iterations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import wirecost

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / "how-to" / "trace.md", ROOT / "docs" / "tutorials" / "read-a-trace.md"]
JOB = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="file://{folder}/rendezvous", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
loader = [torch.zeros(8, 64)] * 12

def train_step(batch):
    model(batch).sum().backward()

{recipe}
dist.destroy_process_group()
"""


def recipe(page: Path) -> str:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (code,) = [block for block in blocks if "schedule(" in block]
    return code


def test_both_pages_have_the_same_recipe() -> None:
    assert recipe(PAGES[0]) == recipe(PAGES[1])


def test_the_recipe_records_three_iterations(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(JOB.format(folder=tmp_path, recipe=recipe(PAGES[0])))
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["rank0.json"]
    traces = wirecost.read_traces(tmp_path / "traces")
    names = [row["name"] for row in traces.rows("iterations")]
    assert len(names) == len(set(names)) == 3
