"""`wirecost transport` as it is called from a shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOG = """\
alpha:100:200 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>
beta:100:200 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.2<0>
alpha:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
beta:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0
"""


def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirecost", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def test_json_and_text(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    answer = json.loads(call("transport", str(path), "--format", "json").stdout)
    assert answer["verdict"] == "ipoib"
    assert [w["code"] for w in answer["warnings"]] == ["ipoib_not_rdma"]
    assert answer["communicators"][0]["pairs"][0]["hosts"] == ["alpha", "beta"]
    shown = call("transport", "-", stdin=LOG)
    assert shown.returncode == 0
    assert (
        "Transport: ipoib" in shown.stdout
        and "alpha - beta" in shown.stdout
        and "NET/Socket on ib0" in shown.stdout
    )


def test_unknown_is_an_answer_and_a_missing_file_an_error(tmp_path: Path) -> None:
    unknown = call("transport", "-", "--format", "json", stdin="hello\n")
    assert unknown.returncode == 0
    assert json.loads(unknown.stdout)["reason"].startswith("unknown because none of 1 lines is NCCL's")
    missing = call("transport", str(tmp_path / "none.log"))
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1 and "none.log" in missing.stderr


def test_expect_marks_a_job_on_another_transport(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    assert call("transport", str(path), "--expect", "ipoib").returncode == 0
    other = call("transport", str(path), "--expect", "rdma-gdr")
    assert (other.returncode, other.stderr) == (1, "wirecost: requested rdma-gdr and got ipoib\n")
    wrong = call("transport", str(path), "--expect", "rdma-gdx")
    assert wrong.returncode == 2 and "did you mean 'rdma-gdr'?" in wrong.stderr


def test_imports_nothing_heavy() -> None:
    """It runs on compute nodes, inside containers with few packages."""
    code = (
        "import sys, wirecost.ncclog as n; n.read_text('x'); "
        "heavy = ('polars', 'pyarrow', 'altair', 'rich', 'numpy', 'pydantic', 'torch'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
