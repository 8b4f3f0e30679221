"""Other projects' stacks on wirecost's workloads, as the study `engines` compares them."""

import importlib.util
import subprocess
import sys

import pytest


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, "-m", f"wirecost.peers.{module}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def refusal(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"wirecost.peers.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers (scripts/trainers)"
)
def test_hugging_faces_llama_learns_with_fsdp2() -> None:
    done = run("hugging_face", "--workload", "llama-tiny", "--iterations", "3")
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("iteration")]
    assert len(losses) == 3 and losses[0] > losses[1] > losses[2]


def test_what_cannot_be_trained_is_refused_in_one_line() -> None:
    assert "only those of family llama" in refusal("hugging_face", "--workload", "gpt-tiny")
    assert "only those of family llama" in refusal("torchtitan", "--workload", "mixtral-8x7b")
    assert "torchtitan" in refusal("torchtitan", "--workload", "llama-tiny")
