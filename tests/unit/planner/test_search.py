from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.planning import TWO_NODES, answered, question, small_model
from wirecost.errors import SpecError
from wirecost.planner.answer import setup_of_choice
from wirecost.planner.choices import plan_of
from wirecost.planner.question import Question
from wirecost.planner.search import search
from wirecost.planner.space import chunk_counts, divides_layers, divisors
from wirecost.prediction.predict import predict
from wirecost.spec import DataParallel, Plan, Recompute

MOE = {"experts": 4, "top_k": 2, "expert_ffn_hidden": 512}


def brute_force(asked: Question, fixed: dict[str, object]) -> tuple[float, int]:
    """Returns the shortest predicted time of all plans that `setup` accepts and that fit, each predicted alone, and
    their number."""
    best, count = float("inf"), 0
    gpus, workload = asked.gpus, asked.workload
    degrees = [d for d in range(1, gpus + 1) if gpus % d == 0]
    experts = [1, 2, 4] if workload.mixture_of_experts else [1]
    sharded = [
        (d, g) for d in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3) for g in ("all", "node")
    ]
    kinds = [(DataParallel.ALL_REDUCE, "all"), (DataParallel.DDP, "all"), *sharded]
    for tp, pp, cp, ep, (kind, group), sp, vpp in product(
        degrees, degrees, degrees, experts, kinds, (False, True), (1, 2, 4)
    ):
        if gpus % (tp * pp * cp) or not divides_layers(workload, tp):
            continue
        if (sp and (tp == 1 or workload.sequence_length % (tp * cp))) or (
            group == "node" and not _splits_node(asked, tp, gpus // (tp * pp * cp), cp)
        ):
            continue
        plan = Plan.model_validate(
            {
                "name": "p",
                "tensor_parallel": tp,
                "pipeline_parallel": pp,
                "context_parallel": cp,
                "expert_parallel": ep,
                "data_parallel": kind,
                "sharding_group": group,
                "sequence_parallel": sp,
                "virtual_stages": vpp,
                "precision": "bf16",
                **fixed,
            }
        )
        for mb in range(1, asked.global_batch + 1):
            try:
                setup = asked.setup(plan, mb, asked.stacks[0])
            except SpecError:
                continue
            if vpp > 1 and vpp not in chunk_counts(workload.layers, pp, setup.accumulation):
                continue
            prediction = predict(setup)
            if prediction.fits:
                best, count = min(best, prediction.total_s), count + 1
    return best, count


def _splits_node(asked: Question, tp: int, dp: int, cp: int) -> bool:
    inside = asked.cluster.gpus_per_node // tp
    return inside > 1 and dp > 1 and inside < dp * cp and inside % cp == 0 and dp * cp % inside == 0


@settings(max_examples=4, deadline=None)
@given(
    gpus=st.sampled_from([1, 2, 4]),
    batch=st.sampled_from([4, 6]),
    recompute=st.sampled_from(list(Recompute)),
    overlap=st.booleans(),
    experts=st.booleans(),
    stack=st.sampled_from(["generic", "generic-unfused"]),
)
def test_the_search_is_as_fast_as_predicting_every_plan_alone(
    gpus: int, batch: int, recompute: Recompute, overlap: bool, experts: bool, stack: str
) -> None:
    workload = small_model(kv_heads=2, mixture_of_experts=MOE if experts else None)
    asked = question(
        workload, TWO_NODES, gpus, batch, f"recompute={recompute.value}", "placement=tp_first", stacks=(stack,)
    )
    found = search(asked)
    # Without replicas there is nothing to overlap, and the search keeps one of two equal plans.
    other = (found.column("dp") * found.column("cp") > 1) & (found.column("overlap") != float(overlap))
    expected, count = brute_force(asked, {"recompute": recompute, "overlap": overlap})
    assert count
    assert np.isclose(found.total_s[~other].min(), expected, rtol=1e-12)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_plan_of_a_search_is_predicted_the_same_alone(data: st.DataObject) -> None:
    experts = data.draw(st.booleans())
    workload = small_model(mixture_of_experts=MOE if experts else None)
    gpus = data.draw(st.sampled_from([1, 4, 8, 16]))
    asked = question(
        workload, TWO_NODES, gpus, data.draw(st.sampled_from([8, 24])), stacks=("generic", "torchtitan")
    )
    found = search(asked)
    assert len(found)
    for place in data.draw(st.lists(st.integers(0, len(found) - 1), min_size=5, max_size=5)):
        stack = asked.stacks[found.modes[int(found.mode[place])][1]]
        prediction = predict(setup_of_choice(asked, found.choice(place), stack))
        assert np.isclose(found.total_s[place], prediction.total_s, rtol=1e-12)
        assert np.isclose(found.memory_bytes[place], float(prediction.memory.total), rtol=1e-12)
        assert np.isclose(found.comm_fraction[place], prediction.comm_fraction, rtol=1e-9)


def test_plans_are_sorted_from_the_fastest_on_and_fit() -> None:
    found = search(question())
    assert len(found) > 100
    assert np.all(np.diff(found.total_s) >= 0)
    assert found.memory_bytes.max() <= 80 * 2**30
    assert len(found) < found.legal
    assert found.near_miss is not None and 80 * 2**30 < found.near_miss.memory_bytes <= 88 * 2**30


def test_headroom_leaves_memory_free() -> None:
    assert search(question(headroom=0.25)).memory_bytes.max() <= 60 * 2**30


def test_a_constraint_keeps_exactly_the_plans_that_meet_it() -> None:
    everything = search(question())
    kept = search(question("llama-3-8b", "dgx-h100", 8, 64, "tp<=2", "recompute!=full", "memory<=60GiB", "mb=1"))
    expected = (
        (everything.column("tp") <= 2)
        & (everything.column("recompute") != 2)
        & (everything.memory_bytes <= 60 * 2**30)
        & (everything.column("mb") == 1)
    )
    assert len(kept) == expected.sum() > 0
    assert np.array_equal(kept.total_s, everything.total_s[expected])


def test_megatron_shards_no_parameters_and_fsdp_splits_no_layers() -> None:
    found = search(question(stacks=("megatron-core", "fsdp-flash")))
    stack = np.array([number for _, number in found.modes])[found.mode]
    assert found.column("zero")[stack == 0].max() == 1
    assert set(found.column("zero")[stack == 1]) <= {0, 2, 3}
    assert found.column("tp")[stack == 1].max() == 1


def test_shards_stay_inside_nodes_only_where_a_node_has_several() -> None:
    found = search(question("llama-3-8b", "dgx-h100", 32, 64))
    inside = found.column("sharding_group") == 1
    assert inside.any()
    assert found.column("tp")[inside].max() < 8


def test_odd_numbers_of_gpus_have_plans() -> None:
    # 7 divides neither heads nor layers of the model: only data, pipeline and context parallelism remain.
    found = search(question("llama-3-8b", "dgx-h100", 7, 49))
    assert set(found.column("tp")) == {1}
    assert {1, 7} <= set(found.column("dp"))


def test_experts_are_divided_by_their_own_divisors() -> None:
    workload = small_model(mixture_of_experts={"experts": 2, "top_k": 1})
    assert set(search(question(workload, gpus=8, batch=8)).column("ep")) == {1, 2}


def test_divisors_are_sorted_and_complete() -> None:
    assert all(divisors(n) == [d for d in range(1, n + 1) if n % d == 0] for n in range(1, 200))


def test_chunks_are_equal_or_leave_out_a_layer_at_each_end() -> None:
    assert chunk_counts(32, 4, 8) == [2, 4, 8]
    assert chunk_counts(126, 16, 16) == [2, 4]  # 126 layers and both ends are 128: 4 or 2 of them a chunk
    assert chunk_counts(32, 4, 6) == []


def test_the_answer_has_one_plan_of_each_set_of_degrees() -> None:
    listed = answered().ranked
    degrees = [(r.choice.tp, r.choice.pp, r.choice.cp, r.choice.ep) for r in listed]
    assert len(set(degrees)) == len(degrees) == 10


def test_a_plan_of_a_choice_has_its_keys() -> None:
    choice = answered().ranked[0].choice
    plan = plan_of(choice, "bf16", None)
    assert (plan.tensor_parallel, plan.pipeline_parallel) == (choice.tp, choice.pp)
    assert plan.data_parallel is choice.data_parallel
