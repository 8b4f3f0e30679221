"""BERT and T5 under data parallelism against one process: the same parameters, exactly the bytes; a whole study."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.parity import STEPS, WORKLOADS, assert_same, experiment, reference, train_all
from wirecost.spec import DataParallel, Family, Plan, Study, parse_yaml, validate
from wirecost.spec.parameters import count
from wirecost.study import Status, run_study

PLANS = [
    Plan(name="all-reduce"),
    Plan(name="ddp", data_parallel=DataParallel.DDP, bucket_bytes=40_000),
]
FAMILIES = [Family.BERT, Family.T5]


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_family_trains_as_one_process_does(ranks: int, tmp_path: Path) -> None:
    cases = [(family, plan) for family in FAMILIES for plan in PLANS]
    runs = train_all([experiment(plan, WORKLOADS[family], ranks) for family, plan in cases], tmp_path)
    assert len(runs) == len(FAMILIES) * len(PLANS) > 0
    for (family, _), trained in zip(cases, runs, strict=True):
        alone = reference(family)
        assert_same(trained, alone)
        parameters = sum(p.numel() for p in alone.parameters.values())
        for of_rank in trained.calls:
            assert len(of_rank) == STEPS
            for calls in of_rank:
                assert {c[:3] for c in calls} == {("all_reduce", "data_parallel", ranks)}
                # No constant of a model (T5's distances) is sent.
                assert sum(c[3] for c in calls) == 4 * parameters


STUDY = """\
name: families
workloads:
  - {config: bert.json, sequence_length: 32}
  - {name: t5, family: t5, layers: 1, decoder_layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32,
     activation: relu, norm: rmsnorm, positions: relative, biases: false}
networks: [loopback]
plans: [all-reduce]
hosts: [2]
scaling: [{kind: strong, global_batch: 4}]
iterations: 6
warmup: 1
"""
BERT_CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}


def test_a_study_of_bert_and_t5_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert.json").write_text(json.dumps(BERT_CONFIG))
    study = validate(Study, parse_yaml(STUDY, "study"), "study")
    results = run_study(study, tmp_path / "out")
    assert len(results) == len(study.experiments()) > 0
    for result in results:
        assert result.outcome.status is Status.DONE, result.outcome
        assert result.breakdown is not None
        for call in result.breakdown.collectives:
            assert call.bytes == 6 * 4 * count(result.experiment.workload).total  # type: ignore[union-attr]
        losses = [i.loss for i in result.breakdown.iterations if i.rank == 0 and i.loss is not None]
        assert losses[-1] < losses[0]
