from __future__ import annotations

import math

import numpy as np
import pytest

from support.planning import answered, question, small_model
from wirecost.errors import SpecError
from wirecost.planner.answer import answer
from wirecost.planner.distinct import OTHER_DEGREES, Distances
from wirecost.planner.limits import Limits
from wirecost.planner.listing import pareto
from wirecost.planner.parts import parts_of
from wirecost.planner.robust import with_bandwidth_times
from wirecost.planner.search import machines_of, search


@pytest.fixture(scope="module")
def found():  # type: ignore[no-untyped-def]
    return search(question("llama-3-8b", "dgx-h100", 32, 128))


def test_the_parts_sum_to_the_iteration(found) -> None:  # type: ignore[no-untyped-def]
    places = np.arange(0, len(found), 37)
    assert np.allclose(parts_of(found, places).sum(axis=1), found.total_s[places], rtol=1e-9)


def test_a_plan_can_not_be_told_from_itself_and_the_widths_are_symmetric(found) -> None:  # type: ignore[no-untyped-def]
    distances = Distances(found, [0, 5, 50, 500])
    assert distances.half_width(0, 0) == 0
    assert distances.half_width(5, 500) == pytest.approx(distances.half_width(500, 5))


def test_plans_that_differ_in_overlap_alone_are_told_apart_more_finely(found) -> None:  # type: ignore[no-untyped-def]
    names = ("tp", "pp", "vpp", "cp", "mb", "zero", "sp", "recompute", "sharding_group")
    columns = np.stack([found.column(name) for name in names])
    same = [p for p in range(1, len(found)) if np.array_equal(columns[:, p], columns[:, 0])]
    other = next(p for p in range(1, len(found)) if found.column("mb")[p] != found.column("mb")[0])
    distances = Distances(found, [0, *same, other])
    assert same
    assert all(distances.half_width(0, place) < OTHER_DEGREES for place in same)
    assert distances.half_width(0, other) >= OTHER_DEGREES


def test_plans_of_a_group_overlap_with_its_fastest() -> None:
    result = answered("llama-3-8b", "dgx-h100", 32, 128)
    leaders: dict[int, int] = {}
    distances = Distances(result.found)
    assert result.ranked
    for ranked in result.ranked:
        leader = leaders.setdefault(ranked.group, ranked.place)
        ratio = result.found.total_s[ranked.place] / result.found.total_s[leader]
        assert abs(math.log(ratio)) <= distances.half_width(leader, ranked.place) + 1e-12
    assert result.alike >= sum(ranked.group == 1 for ranked in result.ranked)
    assert 1 <= len(set(result.to_measure)) == len(result.to_measure) <= 3


def test_no_plan_beats_one_of_the_front_in_both(found) -> None:  # type: ignore[no-untyped-def]
    front = pareto(found)
    assert front[0] == 0
    for place in front:
        faster = found.total_s <= found.total_s[place]
        smaller = found.memory_bytes < found.memory_bytes[place]
        assert not np.any(faster & smaller)


def test_the_fastest_plans_of_changed_machines_are_those_of_a_new_search() -> None:
    asked = question("llama-3-8b", "dgx-h100", 32, 128)
    result = answer(asked)
    slower = asked.cluster.model_copy(
        update={
            key: link.model_copy(update={"rate": type(link.rate)(link.rate * 0.8)})
            for key, link in (("intra_node", asked.cluster.intra_node), ("inter_node", asked.cluster.inter_node))
        }
    )
    again = search(question("llama-3-8b", "dgx-h100", 32, 128).__class__(**{**asked.__dict__, "cluster": slower}))
    case = next(case for case in result.cases if case.name == "bandwidth -20 %")
    assert case.total_s == pytest.approx(float(again.total_s[0]), rel=1e-6)
    assert len(result.cases) == 4
    assert all(regret >= 0 for case in result.cases for regret in case.regrets)


def test_bandwidth_changes_links_and_nothing_else() -> None:
    machine = machines_of(question())(0, 0)
    changed = with_bandwidth_times(machine, 0.8)
    assert changed.node_Bps == pytest.approx(0.8 * machine.node_Bps)
    assert changed.peak_flops == machine.peak_flops


def test_rules_name_the_fastest_plans_that_obey_and_do_not() -> None:
    result = answered("llama-3-8b", "dgx-h100", 32, 128)
    rule = result.rules[0]
    assert rule.obeying is not None and rule.obeying[0].tp <= 8
    assert rule.disobeying is not None and rule.disobeying[0].tp > 8
    assert rule.obeyed == (result.ranked[0].choice.tp <= 8)
    assert rule.cost == pytest.approx(rule.disobeying[1] / rule.obeying[1] - 1)
    largest = result.rules[2]
    assert largest.obeying is not None and largest.disobeying is not None
    assert min(largest.obeying[1], largest.disobeying[1]) == pytest.approx(float(result.found.total_s[0]))


def test_rules_about_nodes_do_not_apply_to_one_node() -> None:
    assert [rule.obeyed for rule in answered().rules][:2] == [None, None]


def test_an_explanation_sums_to_the_difference() -> None:
    result = answered()
    explanation = result.explain("1", "2")
    more = sum(part.more for part in explanation.times)
    first, second = (ranked.prediction.total_s for ranked in result.ranked[:2])
    assert more == pytest.approx(second - first)
    assert abs(explanation.times[0].more) == max(abs(part.more) for part in explanation.times)
    assert {name for name, _, _ in explanation.choices}


def test_a_label_leads_back_to_its_plan() -> None:
    result = answered("llama-3-8b", "dgx-h100", 32, 128)
    assert len(result.ranked) == 10
    for ranked in result.ranked:
        assert result.found.choice(result.place_of(ranked.choice.label)).label == ranked.choice.label


@pytest.mark.parametrize("text", ["0", "11", "tp=64", "mb=7,tp=2"])
def test_a_plan_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        answered().place_of(text)


def test_where_nothing_fits_the_answer_says_by_how_much_and_what_would() -> None:
    result = answered("llama-3-70b", "dgx-h100", 8, 64)
    assert not result.ranked
    smallest = result.found.smallest
    assert smallest is not None and smallest[1] > 80 * 2**30
    # 70.6e9 parameters over 8 GPUs: 2 bytes of weights, 2 of gradients and 8 of optimizer states are 99 GiB each.
    assert smallest[1] == pytest.approx(99 * 2**30, rel=0.15)
    assert any(change.what == "on 16 GPUs" for change in result.changes)
    assert all(change.memory_bytes <= 80 * 2**30 for change in result.changes)


def test_a_constraint_that_excludes_all_is_named() -> None:
    result = answered("llama-3-8b", "dgx-h100", 8, 64, "memory<=2 GiB")
    assert [change.what for change in result.changes][:1] == ["without the constraint memory<=2 GiB"]


def test_a_batch_that_can_not_be_divided_is_refused_with_the_reason() -> None:
    # Two GPUs, one sequence, one layer and one head: nothing can be split but by context parallelism.
    workload = small_model(layers=1, heads=1, sequence_length=3)
    with pytest.raises(SpecError, match="TP x PP x CP x DP must be 2"):
        answered(workload, gpus=2, batch=1)
    with pytest.raises(SpecError, match="meets the constraints tp=3"):
        answered("llama-3-8b", "dgx-h100", 8, 64, "tp=3")


def test_gpus_that_fill_no_nodes_are_refused() -> None:
    with pytest.raises(SpecError, match="nearest that does: 8 or 16"):
        answered("llama-3-8b", "dgx-h100", 12, 64)


def test_limits_are_met_or_the_nearest_number_of_gpus_is_named() -> None:
    asked = question("llama-3-8b", "dgx-h100", 8, 64)
    easy = answer(asked, Limits(tokens=1e9, deadline_s=30 * 86400))
    assert easy.meets is True
    assert easy.ranked[0].run_s == pytest.approx(1e9 / easy.tokens * easy.ranked[0].prediction.total_s)
    hard = answer(asked, Limits(tokens=1e12, deadline_s=50 * 86400))
    assert hard.meets is False
    assert [change.what for change in hard.changes] == ["on 32 GPUs"]
