"""The hook inside a job, in processes of its own."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirecost.jobs.environment import HOOK

TRAIN = """
import torch
def step(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()
def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
"""


def run(tmp_path: Path, script: str, **variables: str) -> list[list[dict[str, Any]]]:
    """Runs a script with the hook, and returns the recordings' lines."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HOOK), *variables.pop("path", "").split(os.pathsep)]),
        "WIRECOST_JOB": str(tmp_path / "job"),
        "WIRECOST_JOB_WARMUP": "2",
        "WIRECOST_JOB_ITERATIONS": "4",
        "WIRECOST_JOB_PROFILED": "0",
        "RANK": "0",
        **variables,
    }
    (tmp_path / "job").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    paths = sorted((tmp_path / "job" / "steps").glob("*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def ends(lines: list[dict[str, Any]]) -> int:
    return sum("t_ns" in line for line in lines)


def test_steps_are_recorded_until_all_iterations_are_measured(tmp_path: Path) -> None:
    (lines,) = run(tmp_path, TRAIN + "o = optimizer()\nfor _ in range(50): step(o)\n")
    assert lines[0]["rank"] == 0 and lines[0]["device"] == "cpu"
    assert ends(lines) == 6  # iterations 2 to 5 are measured, each between two ends
    assert lines[-1] == {"ended": "done", "reason": None}


def test_of_several_optimizers_the_rarest_ends_iterations(tmp_path: Path) -> None:
    script = "a, b = optimizer(), optimizer()\nfor _ in range(6):\n    for _ in range(3): step(a)\n    step(b)\n"
    (lines,) = run(tmp_path, TRAIN + script)
    # The second optimizer appears after the first one was chosen.
    start = max(number for number, line in enumerate(lines) if "restart" in line)
    assert ends(lines[start:]) == 6
    assert lines[-1]["ended"] == "done"


def test_a_step_that_the_grad_scaler_skips_ends_an_iteration(tmp_path: Path) -> None:
    script = """
o = optimizer()
scaler = torch.amp.GradScaler("cpu")
p = o.param_groups[0]["params"][0]
for n in range(5):
    scaler.scale((p * (float("inf") if n == 2 else 1.0)).sum()).backward()
    scaler.step(o)
    scaler.update()
    p.grad = None
"""
    (lines,) = run(tmp_path, TRAIN + script)
    assert ends(lines) == 5


def test_forked_ranks_record_apart_and_processes_without_steps_do_not(tmp_path: Path) -> None:
    script = """
import multiprocessing as mp
o = optimizer()
def rank(n):
    for _ in range(3 * n): step(o)
context = mp.get_context("fork")
ranks = [context.Process(target=rank, args=(n,)) for n in (0, 1, 1)]
[r.start() for r in ranks]
[r.join() for r in ranks]
"""
    recordings = run(tmp_path, TRAIN + script)
    assert len(recordings) == 2


def test_another_sitecustomize_runs_and_nothing_of_the_hook_is_seen(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'ran'\n")
    script = f"""
import os, sys
assert os.environ["OWN"] == "ran"
assert "torch" not in sys.modules and "wirecost" not in sys.modules
assert {str(HOOK)!r} not in sys.path
import sitecustomize
assert sitecustomize.__file__ == {str(own / "sitecustomize.py")!r}
try:
    import recorder
except ImportError:
    pass
else:
    raise AssertionError("the hook's files are visible")
"""
    assert run(tmp_path, script, path=str(own)) == []


def test_an_error_of_the_recording_does_not_end_the_job(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "steps").write_text("a file in the place of the folder")
    assert run(tmp_path, TRAIN + "o = optimizer()\nfor _ in range(9): step(o)\n") == []


def test_an_uncaught_error_is_reported_for_the_launcher(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(tmp_path, TRAIN + "step(optimizer())\n1 / 0\n")
    report = json.loads((tmp_path / "job" / "failures" / "rank-0.json").read_text())
    assert (report["kind"], report["reason"]) == ("error", "ZeroDivisionError: division by zero")


def test_an_error_of_a_launcher_does_not_hide_that_of_its_rank(tmp_path: Path) -> None:
    """A launcher like accelerate imports PyTorch, and fails after the script that it has started."""
    script = """
import subprocess, sys
import torch
if len(sys.argv) == 1:
    subprocess.run([sys.executable, "-c", "import torch; 1 / 0"], check=True)
"""
    with pytest.raises(AssertionError, match="CalledProcessError"):
        run(tmp_path, script)
    report = json.loads((tmp_path / "job" / "failures" / "rank-0.json").read_text())
    assert report["reason"] == "ZeroDivisionError: division by zero"


def test_the_hook_imports_the_standard_library_only() -> None:
    sources = list(HOOK.glob("*.py"))
    assert len(sources) == 3
    for path in sources:
        assert "import wirecost" not in path.read_text() and "from wirecost" not in path.read_text()


@pytest.mark.parametrize(
    ("properties", "uuid"),
    [
        (SimpleNamespace(uuid="1e3a2b40-7c9d-4f10-9d55-0a8b6c1d2e3f"), "1e3a2b40-7c9d-4f10-9d55-0a8b6c1d2e3f"),
        (SimpleNamespace(uuid="00000000-0000-0000-0000-000000000000"), None),
        (SimpleNamespace(), None),  # of earlier versions of PyTorch
    ],
)
def test_a_gpu_is_unknown_without_a_uuid_of_its_own(
    properties: SimpleNamespace, uuid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    recorder = runpy.run_path(str(HOOK / "recorder.py"))
    assert recorder["_uuid_of"](None) == uuid
