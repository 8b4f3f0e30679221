from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wirecost.errors import SpecError
from wirecost.planner.answer import answer
from wirecost.planner.one_change import differing
from wirecost.planner.request import Wishes, present_plan, request_around, request_of

JOB: Any = {"cluster": "dgx-h100", "gpus": 16, "global_batch": 64}


def job(**options: Any) -> Any:
    """Returns the options of the job with more."""
    return {**JOB, **options}


def test_options_of_a_plan_fix_what_they_name() -> None:
    request = request_of("llama-3-8b", job(tensor_parallel=2, data_parallel="zero1", recompute="full"))
    found = answer(request.question).found
    assert set(found.column("tp")) == {2}
    assert set(found.column("zero")) <= {1}
    assert set(found.column("recompute")) == {2}


def test_what_was_not_said_is_assumed_and_named() -> None:
    assumed = request_of("llama-3-8b", {"cluster": "dgx-h100", "gpus": 16}).assumed
    assert assumed["global batch"] == "256"
    assert set(assumed) == {"precision", "stacks", "global batch", "sequence length"}
    assert "global batch" not in request_of("llama-3-8b", JOB).assumed


def test_a_file_of_constraints_holds_limits_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "constraints: [tp<=2, mb=1]\nheadroom: 10 %\ntokens: 1B\ndeadline: 3 days\nprice: 2.5\n"
    )
    request = request_of("llama-3-8b", JOB, Wishes((str(tmp_path / "c.yaml"), "pp=1"), tokens="2B"))
    assert [c.text for c in request.question.constraints] == ["tp<=2", "mb=1", "pp=1"]
    assert request.question.headroom == pytest.approx(0.1)
    assert (request.limits.tokens, request.limits.deadline_s, request.limits.price) == (2e9, 3 * 86400, 2.5)


@pytest.mark.parametrize(
    "text",
    [
        "constraints: [tp<=8",
        "constraints: 7",
        "constraints: [[tp<=8]]",
        "constraint: [tp<=8]",
        "constraints: ['tp<=8', 'tp<=8", 
        "a: &a [*a]",
        "constraints: !!python/object/apply:os.system [ls]",
        "headroom: [1]",
        "headroom: 100 %",
        "headroom: .inf",
        "tokens: 1e400",
        "deadline: yesterday",
        "price: -1",
        "constraints: [" + ", ".join(["tp<=8"] * 500) + "]",
        "- tp<=8",
        "\x00",
        "",
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    try:
        request_of("llama-3-8b", JOB, Wishes((str(path),)))
    except SpecError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 600
    else:
        assert text == ""


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        request_of("llama-3-8b", JOB, Wishes((str(tmp_path / "none.yaml"),)))


@pytest.mark.parametrize("text", ["1.5", "100 %", "-1", "a", "1e9", "10 %%"])
def test_a_headroom_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="headroom"):
        request_of("llama-3-8b", JOB, Wishes(headroom=text))


def test_several_stacks_are_searched_together() -> None:
    request = request_of("llama-3-8b", job(stack="megatron-core,torchtitan"))
    assert [stack.name for stack in request.question.stacks] == ["megatron-core", "torchtitan"]
    with pytest.raises(SpecError, match="unknown stack"):
        request_of("llama-3-8b", job(stack="megatron-core,nope"))


def test_a_schedule_fixes_the_chunks() -> None:
    assert request_of("llama-3-8b", job(pipeline_schedule="1f1b")).question.constraints[0].text == "schedule=1f1b"
    found = answer(request_of("llama-3-8b", job(pipeline_schedule="interleaved")).question).found
    assert len(found) and found.column("vpp").min() > 1
    with pytest.raises(SpecError, match="isn't searched"):
        request_of("llama-3-8b", job(pipeline_schedule="gpipe"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"lora_rank": 8}, "adapters aren't searched"),
        ({"context_communication": "a2a"}, "a2a' isn't searched, but p2p is"),
        ({"tensor": 4}, "unknown option 'tensor'"),
    ],
)
def test_options_that_no_search_heeds_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        request_of("llama-3-8b", job(**options))
    with pytest.raises(SpecError, match=reason):
        present_plan("llama-3-8b", job(**options))


def test_short_names_of_options_count_too() -> None:
    found = answer(request_of("llama-3-8b", job(tp=4)).question).found
    assert set(found.column("tp")) == {4}


@pytest.mark.parametrize("text", ["gpipe", "zb-h3", ",", "1f1b;zb-h1"])
def test_schedules_that_are_not_searched_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="schedules: "):
        request_of("llama-3-8b", JOB, Wishes(schedules=text))


def test_schedules_come_from_options_files_and_constraints(tmp_path: Path) -> None:
    def allowed(**keys: Any) -> list[str]:
        return [each.value for each in request_of("llama-3-8b", JOB, Wishes(**keys)).question.schedules]

    assert allowed() == ["1f1b", "interleaved"]
    assert allowed(schedules="ZB_H1, 1f1b") == ["zb-h1", "1f1b"]
    assert allowed(constraints=("schedule=dualpipe",)) == ["1f1b", "interleaved", "dualpipe"]
    assert allowed(constraints=("schedule!=dualpipe",)) == ["1f1b", "interleaved"]
    file = tmp_path / "plans.yaml"
    file.write_text("schedules: [1f1b, zb-h2]\n")
    assert allowed(constraints=(str(file),)) == ["1f1b", "zb-h2"]


def test_a_complete_plan_is_not_searched() -> None:
    with pytest.raises(SpecError, match="is complete"):
        request_of("llama-3-8b", job(plan="zero3-bf16"))


def test_one_change_keeps_the_rest() -> None:
    options: Any = {**JOB, "tensor_parallel": 2, "pipeline_parallel": 2, "micro_batch": 1}
    present = present_plan("llama-3-8b", options)
    request = request_around("llama-3-8b", options, Wishes(), present)
    result = answer(request.question, present=present)
    assert result.ranked
    assert set(differing(result.found, present.choice)) == {0, 1}
    own = differing(result.found, present.choice) == 0
    assert result.found.total_s[own].min() == pytest.approx(present.prediction.total_s)


def test_accelerators_without_cuda_have_their_own_stack() -> None:
    request = request_of("llama-3-8b", {"cluster": "tpu-v5p-pod", "gpus": 16, "global_batch": 64})
    assert [stack.name for stack in request.question.stacks] == ["generic"]
