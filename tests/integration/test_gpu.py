"""Training on GPUs over NCCL, each GPU an emulated host of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.studies import write_study
from wirecost.breakdown import Phase
from wirecost.spec import Study, load
from wirecost.study import Status, run_study

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_gpu,
    pytest.mark.needs_root,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs_gpu: two GPUs"),
]


def test_two_gpus_as_two_hosts_train_as_one_does(tmp_path: Path) -> None:
    study = load(
        Study,
        write_study(
            tmp_path,
            ("hosts: [2]", "hosts: [1, 2]"),
            ("[all-reduce]", "[all-reduce, ddp]"),
            ("warmup: 1", "warmup: 1\ndevice: cuda"),
            ("rate: 200 Mb/s", "rate: 2 Gb/s"),
        ),
    )
    losses = {}
    for result in run_study(study, tmp_path / "out"):
        assert result.outcome.status is Status.DONE, result.outcome
        assert result.breakdown is not None
        for i in result.breakdown.iterations:
            assert sum(i.phases.values()) == i.parts.window_ns
            assert i.phases[Phase.OTHER] >= 0
        key = (result.experiment.plan.name, result.experiment.ranks)
        groups = result.breakdown.by_iteration().values()
        losses[key] = [sum(i.loss or 0 for i in g) / len(g) for g in groups]
        if result.experiment.ranks == 2:
            log = (result.directory / "logs" / "nccl-0.log").read_text()
            assert "via NET/Socket" in log
            assert "via P2P" not in log
    reference = losses["all-reduce", 1]
    for other in losses.values():
        assert other == pytest.approx(reference, rel=1e-4)
