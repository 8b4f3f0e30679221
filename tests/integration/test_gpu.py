"""Training on GPUs over NCCL, each GPU an emulated host of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.studies import write_study
from wirecost.breakdown import Phase
from wirecost.ncclog import Transport, Where, read_logs
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
            ("rate: 50 Mb/s", "rate: 2 Gb/s"),
        ),
    )
    losses = {}
    for result in run_study(study, tmp_path / "out"):
        assert result.outcome.status is Status.DONE, result.outcome
        assert result.breakdown is not None
        for i in result.breakdown.iterations:
            assert sum(i.phases.values()) == i.parts.window_ns
            assert i.phases[Phase.OTHER] >= 0
        key = (result.experiment.plan.name, result.experiment.ranks)  # type: ignore[union-attr]
        groups = result.breakdown.by_iteration().values()
        losses[key] = [sum(i.loss or 0 for i in g) / len(g) for g in groups]
        if result.experiment.ranks == 2:
            log = (result.directory / "logs" / "nccl-0.log").read_text()
            assert "via NET/Socket" in log
            assert "via P2P" not in log
    reference = losses["all-reduce", 1]
    for other in losses.values():
        assert other == pytest.approx(reference, rel=1e-4)
    assert len(losses) == 4


@pytest.mark.skipif(torch.cuda.device_count() < 4, reason="needs_gpu: four GPUs")
def test_four_gpus_as_two_hosts_of_two_keep_peer_access_inside(tmp_path: Path) -> None:
    study = load(
        Study,
        write_study(
            tmp_path,
            ("hosts: [2]", "hosts: [2]\nranks_per_host: 2"),
            ("warmup: 1", "warmup: 1\ndevice: cuda"),
            ("rate: 50 Mb/s", "rate: 2 Gb/s"),
        ),
    )
    (result,) = run_study(study, tmp_path / "out")
    assert result.outcome.status is Status.DONE, result.outcome
    assert result.breakdown is not None
    assert result.breakdown.network is not None
    assert result.breakdown.network.transport == Transport.TCP
    verdict = read_logs(sorted((result.directory / "logs").glob("nccl-*.log")))
    pairs = [p for c in verdict.communicators if c.nranks == 4 for p in c.pairs]
    inside = {p.hosts: p.verdict for p in pairs if p.where is Where.INSIDE}
    assert inside == {("host0", "host0"): Transport.P2P, ("host1", "host1"): Transport.P2P}
    between = [p for p in pairs if p.where is not Where.INSIDE]
    assert between
    for pair in between:
        assert (set(pair.hosts), pair.verdict) == ({"host0", "host1"}, Transport.TCP)
        assert pair.interfaces == ("eth0",)


def test_collectives_over_nccl_are_right_and_say_their_transport() -> None:
    from wirecost.collectives.bench import run_bench
    from wirecost.collectives.operations import BARRIER, COLLECTIVES
    from wirecost.collectives.options import BenchOptions, request_from

    options = {
        "collectives": [*COLLECTIVES, BARRIER], "smallest": "1M", "largest": None, "factor": None, "step": None,
        "ranks_per_host": None, "groups": "1", "backend": "nccl", "dtype": "bfloat16", "redop": "sum",
        "iterations": 2, "warmup": 2, "check": True, "place": "both", "timeout": "60 s", "seed": 1,
    }  # fmt: skip
    seen: set[str] = set()
    for hosts, network in ((1, "nvlink"), (2, "emulated-2g")):
        network, rows = run_bench(
            request_from(BenchOptions(**options, hosts=hosts, network=network))  # type: ignore[arg-type]
        )
        seen |= {r.collective for r in rows}
        assert all(r.wrong == 0 for r in rows if r.collective != BARRIER)
        assert (network.transport == "tcp") == (hosts == 2), network
    assert seen == {*COLLECTIVES, BARRIER}
