from __future__ import annotations

from contextlib import suppress
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.planning import TWO_NODES, answered, question, small_model
from wirecost.errors import SpecError
from wirecost.planner.answer import matching, setup_of_choice
from wirecost.planner.choices import plan_of
from wirecost.planner.constraints import parse_constraints
from wirecost.planner.question import Question
from wirecost.planner.schedules import SCHEDULES
from wirecost.planner.search import search
from wirecost.planner.space import chunk_counts, divides_layers, divisors
from wirecost.prediction.predict import predict
from wirecost.spec import DataParallel, MatrixPrecision, Plan, Recompute, load_spec, stack_named, with_nodes

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


@settings(max_examples=6, deadline=None)
@given(
    gpus=st.sampled_from([2, 4]),
    schedule=st.sampled_from(["1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe"]),
    placement=st.sampled_from(["tp_first", "pp_first", "dp_last"]),
)
def test_schedules_and_orders_of_ranks_are_as_fast_as_predicting_every_plan_alone(
    gpus: int, schedule: str, placement: str
) -> None:
    order = {"tp_first": "tp-cp-dp-pp", "pp_first": "pp-dp-cp-tp", "dp_last": "tp-cp-pp-dp"}[placement]
    chunks = "vpp>1" if schedule == "interleaved" else "vpp=1"
    fixed = (f"schedule={schedule}", "pp>1", chunks, "cp=1", "recompute=none", "overlap=off", "zero=0", "sp=off")
    asked = question(small_model(), TWO_NODES, gpus, 4, *fixed, stacks=("generic",), schedules=tuple(SCHEDULES))
    found = search(asked)
    times = []
    for pp, tp, mb, vpp in product([2, 4], [1, 2, 4], [1, 2, 4], [1, 2]):
        if (vpp > 1) is not (schedule == "interleaved") or gpus % (pp * tp):
            continue
        keys = {"tensor_parallel": tp, "pipeline_parallel": pp, "virtual_stages": vpp, "precision": "bf16"}
        keys |= {"name": "p", "pipeline_schedule": schedule, "rank_order": order}
        with suppress(SpecError):
            setup = asked.setup(Plan.model_validate(keys), mb, asked.stacks[0])
            if vpp in (1, *chunk_counts(4, pp, setup.accumulation)):
                times.append(predict(setup).total_s)
    placed = {"tp_first": 0, "pp_first": 1, "dp_last": 2}[placement]
    own = found.column("placement") == placed
    if placement == "tp_first" or own.any():
        assert len(times) >= own.sum() > 0
        assert np.isclose(found.total_s[own], np.array(times)[:, None]).any(axis=0).all()
        assert np.isclose(min(times), found.total_s[own].min()) or placement != "tp_first"


def test_no_schedule_is_tried_that_nobody_measured_unless_it_is_allowed() -> None:
    usual = search(question("llama-3-70b", "dgx-h100", 64, 64))
    assert set(usual.column("schedule")) == {0, 1}
    allowed = search(question("llama-3-70b", "dgx-h100", 64, 64, schedules=tuple(SCHEDULES)))
    assert set(allowed.column("schedule")) == {0, 1, 2, 3, 4}
    assert allowed.total_s[0] < usual.total_s[0]
    chosen = allowed.column("schedule") > 1
    assert (allowed.column("pp")[chosen] > 1).all() and (allowed.column("vpp")[chosen] == 1).all()
    # DualPipe's micro-batches enter at both ends.
    assert (allowed.column("pp")[allowed.column("schedule") == 4] % 2 == 0).all()


def test_the_published_plan_of_deepseek_v3_is_searched_and_a_plan_with_its_schedule_is_the_fastest() -> None:
    cluster = with_nodes(load_spec("cluster", "hgx-h800"), 2048)
    asked = Question(
        load_spec("workload", "deepseek-v3", sequence_length=4096), cluster, 2048, 15360,
        (stack_named("megatron-core"),), matrix_precision=MatrixPrecision.FP8, schedules=tuple(SCHEDULES),
        constraints=parse_constraints(["mb=1", "vpp=1", "tp<=2"]),
    )  # fmt: skip
    found = search(asked)
    assert matching(found, parse_constraints(["schedule=dualpipe"]))[0]
    # arXiv:2412.19437, section 3.2: PP 16, EP 64 over 8 nodes, ZeRO-1, DualPipe, no TP.
    published = parse_constraints(["tp=1", "pp=16", "cp=1", "ep=64", "zero=1", "schedule=dualpipe"])
    (places,) = np.nonzero(matching(found, published))
    # Everything is recomputed in it here, because no choice describes the parts that its authors recompute.
    assert found.total_s[places[0]] < 1.3 * found.total_s[0]


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
    assert {0, 2} <= set(found.column("placement")) or gpus <= 2
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
    assert found.is_certain and found.uncertain_count
    assert found.uncertain
    for each in found.uncertain:
        assert each.least_bytes <= 80 * 2**30 < each.memory_bytes
        assert each.total_s < found.total_s[0]


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
