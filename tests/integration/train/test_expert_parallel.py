"""Expert parallelism against one process: the same parameters, and exactly the bytes of theory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.model_messages import assert_messages_of_the_model
from support.parity import LLAMA, MICRO_BATCH, Trained, assert_same, experiment, train_all
from wirecost.spec import DataParallel, Experiment, Plan, Precision, Workload
from wirecost.spec.experiment import Optimizer, Periodic

EXPERTS, TOP_K, ITERATIONS = 4, 2, 3
MIXTURES: dict[str, dict[str, Any]] = {
    "learned": {"shared_experts": 1, "dense_layers": 1},
    "latent": {"groups": 2, "top_k_groups": 1},
    "aux": {"shared_experts": 1, "scoring": "sigmoid", "aux_loss": 0.05},
    "balanced": {"routing": "balanced", "normalised": False, "scaling": 2.0},
    "capacity": {"capacity_factor": 0.75, "scoring": "sigmoid"},
}
LATENT = {"kv_rank": 12, "q_rank": 20, "nope_head_dim": 6, "rope_head_dim": 4, "value_head_dim": 8}
WORKLOADS = {
    name: Workload.model_validate(
        {
            **LLAMA.model_dump(),
            "name": name,
            **({"kv_heads": None, "latent_attention": LATENT} if name == "latent" else {}),
            "mixture_of_experts": {"experts": EXPERTS, "top_k": TOP_K, "expert_ffn_hidden": 24, **settings},
        }
    )
    for name, settings in MIXTURES.items()
}
ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
CLIPPED = Optimizer(epsilon=1e-5, gradient_clipping=0.5)


def plan(**settings: Any) -> Plan:
    return Plan.model_validate({"name": "p", "bucket_bytes": 20_000, "expert_parallel": 2, **settings})


def cases(ranks: int) -> list[Experiment]:
    plans: list[tuple[str, dict[str, Any], dict[str, Any]]]
    if ranks == 2:
        plans = [
            *((name, {}, {}) for name in MIXTURES),
            ("learned", {"data_parallel": "ddp"}, {}),
            ("learned", {"data_parallel": "zero1"}, {}),
            ("balanced", {"data_parallel": "zero2"}, {}),
            ("learned", {"data_parallel": "zero3"}, {}),
            ("learned", {"data_parallel": "ddp", "recompute": "full"}, {}),
            ("learned", {"expert_parallel": 1, "data_parallel": "zero3"}, {}),
            ("latent", {"data_parallel": "zero3"}, {}),
            ("latent", {"expert_parallel": 1, "tensor_parallel": 2}, {}),
            ("latent", {"expert_parallel": 1, "tensor_parallel": 2, "sequence_parallel": True}, {}),
            ("aux", {"expert_parallel": 1, "data_parallel": "zero3"}, {}),
            ("aux", {"expert_parallel": 1, "pipeline_parallel": 2}, {}),
            ("aux", {"expert_parallel": 1, "tensor_parallel": 2, "sequence_parallel": True}, {}),
            ("learned", {"expert_parallel": 1, "tensor_parallel": 2}, {}),
            ("learned", {"expert_parallel": 1, "tensor_parallel": 2, "sequence_parallel": True}, {}),
        ]
    else:
        plans = [
            ("learned", {"expert_parallel": 4}, {}),
            *(("learned", {"data_parallel": kind}, {}) for kind in ("all_reduce", "ddp", *ZERO)),
            ("balanced", {"expert_parallel": 4, "data_parallel": "zero3", "overlap": False}, {}),
            ("learned", {"data_parallel": "zero3", "tensor_parallel": 2}, {}),
            ("learned", {"data_parallel": "zero3", "recompute": "full"}, {}),
            ("balanced", {"data_parallel": "zero1", "overlap": False}, {}),
            ("aux", {"tensor_parallel": 2}, {}),
            ("learned", {"tensor_parallel": 2, "sequence_parallel": True, "data_parallel": "zero1"}, {}),
            ("balanced", {"tensor_parallel": 2, "sequence_parallel": True}, {}),
            ("learned", {"context_parallel": 2}, {}),
            ("learned", {"pipeline_parallel": 2, "data_parallel": "ddp"}, {}),
            ("capacity", {"tensor_parallel": 2, "rank_order": "pp-dp-cp-tp", "data_parallel": "zero2"}, {}),
            ("learned", {"sharding_group": "node", "data_parallel": "zero1"}, {"hosts": 2, "ranks_per_host": 2}),
        ]
    return [
        experiment(plan(**settings), WORKLOADS[name], ranks, iterations=ITERATIONS, optimizer=CLIPPED, **changes)
        for name, settings, changes in plans
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """What one process makes of each mixture."""
    experiments = [
        experiment(plan(expert_parallel=1), workload, 1, iterations=ITERATIONS, optimizer=CLIPPED)
        for workload in WORKLOADS.values()
    ]
    trained = train_all(experiments, tmp_path_factory.mktemp("alone"))
    return dict(zip(WORKLOADS, trained, strict=True))


@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_on_several_ranks_train_as_one_process_does(
    ranks: int, tmp_path: Path, alone: dict[str, Trained]
) -> None:
    experiments = cases(ranks)
    assert experiments
    for case, trained in zip(experiments, train_all(experiments, tmp_path), strict=True):
        try:
            assert_same(trained, alone[case.workload.name])
            if case.plan.expert_parallel > 1:
                assert_bytes(case, trained, alone[case.workload.name])
            elif case.plan.tensor_parallel > 1 and not case.plan.sequence_parallel:
                assert_tensor_bytes(case, trained)
            elif case.plan.data_parallel is DataParallel.ZERO3:
                assert_messages_of_the_model(case, trained.calls[0][-1])
        except AssertionError as wrong:
            raise AssertionError(f"{case.workload.name} with {case.plan}") from wrong


def mixture_layers(case: Experiment) -> int:
    moe = case.workload.mixture_of_experts
    assert moe is not None
    return case.workload.layers - moe.dense_layers


def assert_bytes(case: Experiment, trained: Trained, alone: Trained) -> None:
    """Dispatch and combination of every layer and micro-batch, forward and backward, and the experts' gradients."""
    chosen, moe = case.plan, case.workload.mixture_of_experts
    assert moe is not None
    row = 4 * case.workload.hidden
    copies = MICRO_BATCH * case.workload.sequence_length // chosen.context_parallel * TOP_K
    stages = chosen.pipeline_parallel
    passes = mixture_layers(case) * case.accumulation * (2 if chosen.recompute == "full" else 1)
    backwards = mixture_layers(case) * case.accumulation
    group = ("all_to_all", "expert_parallel", chosen.expert_parallel)
    for iteration, of_ranks in enumerate(zip(*trained.calls, strict=True)):
        sent = Counter(call for calls in of_ranks for call in calls if call[0] == "all_to_all")
        ranks = case.ranks // stages  # each layer is on one stage
        if moe.routing == "balanced":
            assert sent == Counter({(*group, row * copies): ranks * 2 * (passes + backwards)})
        elif moe.capacity_factor is not None:
            places = EXPERTS * -(-3 * copies // (4 * EXPERTS))
            assert sent == Counter({(*group, row * places): ranks * 2 * (passes + backwards)})
        else:
            # The ranks tell one another how many copies come.
            assert sent.pop((*group, 8 * EXPERTS)) == ranks * passes
            assert sum(sent.values()) == ranks * 2 * (passes + backwards)
            # Every copy goes at most once over the network and back, in forward and in backward.
            total = sum(size * count for (_, _, _, size), count in sent.items())
            n = chosen.expert_parallel
            assert 0 < total * (n - 1) / n <= ranks * 2 * (passes + backwards) * row * copies
            rows = sum(of_rank[iteration] or 0 for of_rank in trained.expert_rows)
            assert rows == ranks * passes * copies
    assert_gradient_bytes(case, trained, alone)


def assert_tensor_bytes(case: Experiment, trained: Trained) -> None:
    """Every split layer sums its outputs and the gradients of its inputs, and shared experts are split like one."""
    workload = case.workload
    tokens = MICRO_BATCH * workload.sequence_length
    shared = workload.mixture_of_experts is not None and workload.mixture_of_experts.shared_experts > 0
    columns = Counter({workload.hidden: workload.layers + shared * mixture_layers(case) + 1})  # the head
    rows = Counter({workload.hidden: 2 * workload.layers + shared * mixture_layers(case) + 1})  # the embedding
    if latent := workload.latent_attention:
        assert latent.q_rank is not None
        columns += Counter(dict.fromkeys((latent.q_rank, latent.kv_rank, latent.rope_head_dim), workload.layers))
    else:
        columns[workload.hidden] += workload.layers
    expected = {4 * tokens * width: case.accumulation * count for width, count in (columns + rows).items()}
    for of_rank in trained.calls:
        for calls in of_rank:
            sent = Counter(
                size for op, group, _, size in calls if (op, group) == ("all_reduce", "tensor_parallel")
            )
            assert {size: sent[size] for size in expected} == expected


def assert_gradient_bytes(case: Experiment, trained: Trained, alone: Trained) -> None:
    """The gradients of experts are summed over the ranks that hold them, and all others over all."""
    chosen = case.plan
    if chosen.data_parallel is DataParallel.ZERO3:
        assert_sharded_bytes(case, trained, alone)
        if chosen.tensor_parallel == 1:
            assert_messages_of_the_model(case, trained.calls[0][-1])
    if chosen.data_parallel in ZERO or chosen.model_parallel > 1:
        return
    experts = sum(p.numel() for name, p in alone.parameters.items() if ".experts." in name)
    others = sum(p.numel() for p in alone.parameters.values()) - experts
    copies = case.ranks // chosen.expert_parallel
    for of_rank in trained.calls:
        for calls in of_rank:
            sums: Counter[tuple[str, int]] = Counter()
            for op, group, size, nbytes in calls:
                if op == "all_reduce" and nbytes > 4:  # not the norm
                    sums[group, size] += nbytes
            expected = {("data_parallel", case.ranks): 4 * others}
            if copies > 1:
                expected["expert_data_parallel", copies] = 4 * experts // chosen.expert_parallel
            assert sums == expected


def assert_sharded_bytes(case: Experiment, trained: Trained, alone: Trained) -> None:
    """A rank gathers its experts twice in a micro-batch, and scatters their gradients once."""
    experts = sum(p.numel() for name, p in alone.parameters.items() if ".experts." in name)
    own = 4 * experts // case.plan.expert_parallel // case.plan.tensor_parallel * case.accumulation
    shards = case.ranks // case.plan.tensor_parallel // case.plan.expert_parallel
    expected = {("all_gather", shards): 2 * own, ("reduce_scatter", shards): own} if shards > 1 else {}
    for of_rank in trained.calls:
        for calls in of_rank:
            moved: Counter[tuple[str, int]] = Counter()
            for op, group, size, nbytes in calls:
                if group == "expert_sharding" and nbytes > 4:  # not the norm
                    moved[op, size] += nbytes
            assert moved == expected


@pytest.mark.parametrize("kind", ["zero1", "zero3"])
def test_a_mixture_resumes_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    kept = {"periodic": Periodic(checkpoint_every=2)}
    settings = [
        experiment(plan(data_parallel=kind), WORKLOADS["learned"], 2, iterations=count, **more)
        for count, more in ((4, {}), (2, kept), (4, kept))
    ]
    whole, _, resumed = train_all(settings, tmp_path, checkpoints=[None, "kept", "kept"])
    assert resumed.losses == whole.losses[2:]
    assert resumed.parameters.keys() == whole.parameters.keys()
    for name, value in resumed.parameters.items():
        assert value.equal(whole.parameters[name]), name


def test_mixtures_train_in_16_bits(tmp_path: Path) -> None:
    """Copies are sent with two bytes an element."""
    precisions = (Precision.BF16, Precision.FP16)
    trained = train_all(
        [experiment(plan(precision=p), WORKLOADS["balanced"], 2, iterations=2) for p in precisions], tmp_path
    )
    assert len(trained) == len(precisions)
    for result in trained:
        assert result.losses[-1] < result.losses[0]
        calls = {c for of_rank in result.calls for calls in of_rank for c in calls if c[0] == "all_to_all"}
        size = 2 * LLAMA.hidden * MICRO_BATCH * LLAMA.sequence_length * TOP_K
        assert calls == {("all_to_all", "expert_parallel", 2, size)}
