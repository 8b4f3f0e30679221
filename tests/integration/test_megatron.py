"""Megatron-Core as an engine, with its calls to CUDA replaced by those to a CPU, and its refusals."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirecost.errors import UnsupportedError
from wirecost.launch.ports import free_port
from wirecost.spec import Study
from wirecost.spec.megatron import MegatronJob
from wirecost.study import Status, run_study

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="needs megatron-core (scripts/trainers installs it)"
)
JOB = Path(__file__).parents[1] / "support" / "jobs" / "megatron_on_cpu.py"
SMALL = {"name": "small", "layers": 2, "hidden": 32, "heads": 2, "vocab_size": 1000, "sequence_length": 16}


def settings(plan: object, **workload: object) -> str:
    data = {"workload": {**SMALL, **workload}, "plan": plan, "micro_batch": 2, "micro_batches": 2}
    MegatronJob.model_validate({"name": "m", **data})  # what is tested can be written in a study
    return json.dumps(data)


def losses(plan: object, **workload: object) -> list[float]:
    """Returns the losses of three iterations on two ranks."""
    command = [sys.executable, "-W", "ignore", str(JOB), settings(plan, **workload), "3", "2"]
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    return [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("iteration")]


def test_a_gpt_learns_alike_with_ddp_and_the_distributed_optimizer() -> None:
    plain = losses("ddp")
    assert len(plain) == 3 and plain[0] > plain[1] > plain[2]
    assert losses("zero1") == pytest.approx(plain, abs=2e-4)


def test_a_bert_learns_over_a_pipeline_in_bf16() -> None:
    plan = {"name": "pp2", "pipeline_parallel": 2, "data_parallel": "ddp", "precision": "bf16"}
    bert = losses(plan, family="bert")
    assert len(bert) == 3 and bert[0] > bert[1] > bert[2]


def test_a_t5_learns_with_tensor_parallelism_in_fp16() -> None:
    plan = {"name": "tp2", "tensor_parallel": 2, "precision": "fp16"}
    t5 = losses(plan, family="t5", decoder_layers=1)
    assert len(t5) == 3 and t5[0] > t5[1] > t5[2]


@pytest.mark.needs_root
def test_its_iterations_and_timers_are_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(JOB), settings("zero1")]
    data = {
        "name": "test",
        "workloads": [{"name": "megatron", "command": command}],
        "networks": [{"name": "quick", "emulate": {"rate": "500 Mb/s"}}],
        "iterations": 3,
        "warmup": 4,
        "profile_iterations": 1,
        "benchmark": False,
    }
    (result,) = run_study(Study.model_validate(data), tmp_path / "out")
    assert result.outcome.status is Status.DONE, result.outcome
    assert result.breakdown is not None and len(result.breakdown.iteration_times_ns()) == 3
    assert result.breakdown.profile is not None and result.breakdown.profile.reason is None
    timers = result.breakdown.details["megatron_timers_s"]
    assert set(timers) == {"0", "1"}
    for times in timers.values():
        assert {"forward-compute", "backward-compute", "all-grads-sync", "optimizer-inner-step"} <= set(times)
        assert all(time_s >= 0 for time_s in times.values()) and times["forward-compute"] > 0


def test_it_is_refused_without_gpus_before_anything_starts(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there are GPUs")
    entry = {"name": "m", "engine": "megatron", "workload": "gpt-tiny", "plan": "ddp", "micro_batch": 1}
    study = Study.model_validate({"name": "s", "workloads": [entry], "networks": ["emulated-1g"]})
    with pytest.raises(UnsupportedError, match="does not train on CPUs"):
        run_study(study, tmp_path / "out")
    assert not (tmp_path / "out").exists()
