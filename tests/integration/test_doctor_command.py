"""`wirecost doctor` as it is called from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wirecost", "doctor", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environment}
    )


def test_text_and_json() -> None:
    shown = call()
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Between hosts NCCL would use: ")
    answer = json.loads(call("--format", "json").stdout)
    assert {d["severity"] for d in answer["diagnostics"]} <= {"ok", "info", "warning", "error"}
    assert {f["level"] for f in answer["findings"]} <= {"ok", "note", "warning", "problem"}


def test_strict_fails_on_what_stands_in_the_way() -> None:
    assert call(NCCL_P2P_DISABLE="1").returncode == 0
    assert call("--strict", NCCL_P2P_DISABLE="1").returncode == 1


@pytest.mark.needs_root
def test_without_root_it_says_what_works() -> None:
    """The same attempt as nobody: in a user namespace, or with what stands in the way."""
    if os.geteuid() != 0:
        pytest.skip("changes to another user, which takes root")
    code = (
        "import ctypes, os, pyroute2; from wirecost.doctor.try_namespace import main; "
        "pyroute2.IPRoute().close(); "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0); "  # PR_SET_DUMPABLE: a program started as nobody would be
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    answer = json.loads(done.stdout)
    assert "error" in answer or (answer["root"], answer["veth"]) == (False, True)
