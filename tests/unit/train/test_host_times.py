"""What is derived from the times to issue iterations, and processes that fail while they are timed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import SpecError
from wirecost.launch.processes import process_state
from wirecost.spec import Device, Family, Precision, Workload
from wirecost.spec.parameters import count
from wirecost.train.checks import check_workload
from wirecost.train.hosttimes import Cost, HostCost, HostRequest, measure_host
from wirecost.train.hosttimes.costs import Turns, derive, derive_layers
from wirecost.train.hosttimes.variants import (
    BYTES_PER_PARAMETER,
    MEMORY_SHARE,
    VARIANTS,
    experiment_of,
    measurable,
    model_of,
)

WORKLOAD = Workload(name="small", layers=6, hidden=32, heads=4, vocab_size=256, sequence_length=512)
CALLS = {("all_reduce", "tensor_parallel"): 10, ("all_reduce", "data_parallel"): 3}


def turns(*medians_s: float, kept: bool | None = None) -> Turns:
    return Turns(
        WORKLOAD, calls=dict(CALLS), issue_s=[[s] for s in medians_s], kept=[] if kept is None else [kept]
    )


def test_the_difference_to_one_rank_is_divided_by_the_calls_of_its_group() -> None:
    found = derive(Cost.TENSOR_COLLECTIVE, turns(1.1, 1.3, 1.2), turns(1.0, 1.0, 1.0))
    assert (found.calls, found.note) == (10, None)
    assert found.iteration_s == pytest.approx(0.2)
    assert found.each_s == pytest.approx(0.02)
    spread = found.each_spread_s
    assert spread is not None
    assert [spread.q1, spread.median, spread.q3] == pytest.approx([0.015, 0.02, 0.025])


def test_a_difference_that_cannot_be_told_from_0_is_0_and_says_so() -> None:
    found = derive(Cost.TENSOR_COLLECTIVE, turns(1.1, 0.8, 1.05), turns(1.0, 1.0, 1.0))
    assert (found.iteration_s, found.each_s) == (0.0, 0.0)
    assert found.note is not None
    assert "can't be told from 0" in found.note


def test_a_negative_difference_is_unknown() -> None:
    found = derive(Cost.TENSOR_COLLECTIVE, turns(0.8, 0.7, 0.9), turns(1.0, 1.0, 1.0))
    assert (found.iteration_s, found.each_s) == (None, None)
    assert found.note is not None
    assert "faster with them" in found.note


def test_what_was_not_measured_is_unknown_with_the_reason() -> None:
    whole = turns(1.2, 1.2, 1.2)
    failed = Turns(WORKLOAD, failure="no answer in 9 s")
    held_up = turns(1.2, 1.2, 1.2, kept=False)
    other = Turns(WORKLOAD, issue_s=[[1.2]] * 3)
    cases = [
        (failed, turns(1.0, 1.0, 1.0), "no answer in 9 s"),
        (whole, failed, "one_rank, with which it is compared: no answer in 9 s"),
        (turns(1.2, 1.2), turns(1.0, 1.0), "only 2 of at least 3 rounds"),
        (held_up, turns(1.0, 1.0, 1.0), "slower than its host in 100% of the iterations"),
        (whole, turns(1.0, 1.0, 1.0, kept=False), "one_rank, with which it is compared: the device was slower"),
        (other, turns(1.0, 1.0, 1.0), "issued none"),
    ]
    for own, one_rank, reason in cases:
        found = derive(Cost.TENSOR_COLLECTIVE, own, one_rank)
        assert (found.iteration_s, found.each_s) == (None, None)
        assert found.note is not None
        assert reason in found.note


def test_a_stage_is_compared_with_itself_without_transfers() -> None:
    stage = Turns(WORKLOAD, calls={("send", "pipeline_parallel"): 2, ("recv", "pipeline_parallel"): 2})
    stage.issue_s, stage.baseline_s = [[0.6]] * 3, [[0.5]] * 3
    found = derive(Cost.TRANSFER, stage, Turns(failure="out of memory"))
    assert found.each_s == pytest.approx(0.025)


def layers_of(workload: Workload, fewer_s: float, other_s: float, one_s: float) -> dict[Cost, HostCost]:
    fewer, other, one_rank = (turns(s, s, s) for s in (fewer_s, other_s, one_s))
    return derive_layers(fewer, other, one_rank, workload, 2)


@pytest.mark.parametrize("gated", [False, True])
def test_a_layer_of_each_kind_is_told_from_the_ends_of_the_model(gated: bool) -> None:
    workload = WORKLOAD.model_copy(update={"activation": "swiglu" if gated else "gelu"})
    ends_s, layer_s, other_s = 0.5, 0.01, 0.015
    issue_s = [ends_s + 2 * layers * each for layers, each in ((3, layer_s), (6, other_s), (6, layer_s))]
    found = layers_of(workload, *issue_s)
    own, other = (Cost.GATED_LAYER, Cost.LAYER) if gated else (Cost.LAYER, Cost.GATED_LAYER)
    assert found.keys() == {own, other}
    assert (found[own].cost, found[own].calls) == (own, 6)
    assert found[own].each_s == pytest.approx(layer_s)
    assert found[other].each_s == pytest.approx(other_s)


def test_a_layer_of_one_kind_does_not_need_the_other() -> None:
    whole, failed = turns(1.2, 1.2, 1.2), Turns(WORKLOAD, failure="another kind")
    found = derive_layers(turns(1.0, 1.0, 1.0), failed, whole, WORKLOAD, 2)
    assert found[Cost.LAYER].each_s == pytest.approx(0.2 / 6)
    assert (found[Cost.GATED_LAYER].each_s, found[Cost.GATED_LAYER].note) == (None, "another kind")
    found = derive_layers(failed, whole, whole, WORKLOAD, 2)
    assert {each.note for each in found.values()} == {"another kind"}


def test_the_other_kind_of_a_gpt_is_a_llama_of_its_size() -> None:
    other = model_of(Cost.GATED_LAYER, WORKLOAD)
    assert (other.gated, other.norm, other.positions, other.kv_heads) == (True, "rmsnorm", "rotary", 1)
    assert (other.layers, other.hidden, other.vocab_size) == (6, 32, 256)
    back = model_of(Cost.GATED_LAYER, other)
    assert (back.gated, back.norm, back.positions, back.biases) == (False, "layernorm", "learned", True)
    assert model_of(Cost.LAYER, WORKLOAD).layers == 3
    assert model_of(Cost.UNIT, WORKLOAD) == WORKLOAD
    assert all(check_workload(model) is None for model in (other, back))
    encoder = WORKLOAD.model_copy(update={"family": Family.BERT})
    with pytest.raises(SpecError, match="layers of another kind than a GPT or a Llama"):
        model_of(Cost.LAYER, encoder)


@given(
    st.lists(
        st.tuples(st.floats(1e-6, 10), st.floats(1e-6, 10)),
        min_size=3,
        max_size=9,
    )
)
def test_no_time_is_negative(pairs: list[tuple[float, float]]) -> None:
    found = derive(
        Cost.TENSOR_COLLECTIVE, turns(*(own for own, _ in pairs)), turns(*(alone for _, alone in pairs))
    )
    assert found.each_s is None or found.each_s >= 0
    assert (found.note is None) == bool(found.each_s)


@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_the_measured_model_has_short_sequences_and_as_many_layers_as_fit(family: str) -> None:
    decoder = {"decoder_layers": 7, "decoder_sequence_length": 300} if family == "t5" else {}
    whole = Workload.model_validate(WORKLOAD.model_dump() | {"family": family, "layers": 9} | decoder)
    short = measurable(whole, None)
    assert (short.layers, short.sequence_length) == (8, 128)
    if decoder:
        assert (short.decoder_layers, short.decoder_sequence_length) == (6, 128)
    room = round(BYTES_PER_PARAMETER * count(short).total / MEMORY_SHARE)
    assert measurable(whole, room + 100) == short
    fewer = measurable(whole, room - 100)
    assert fewer.layers == 4
    assert measurable(whole, 1).layers == 2


@pytest.mark.parametrize("device", list(Device))
@pytest.mark.parametrize("cost", list(VARIANTS))
def test_every_variant_has_as_many_micro_batches_as_one_rank(cost: Cost | None, device: Device) -> None:
    request = HostRequest(WORKLOAD, Precision.BF16, device)
    assert experiment_of(request, VARIANTS[cost], WORKLOAD).accumulation == request.micro_batches


PROGRAM = """
import json, os, signal, sys, time
first = json.loads(sys.stdin.readline())
cost = first["cost"]
with open(os.environ["PIDS"], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
if cost == "sequence_collective":
    time.sleep(600)
if cost == "tensor_collective":
    print("the driver is gone", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
calls = [["all_gather", "sharding", 4], ["send", "pipeline_parallel", 2]]
print(json.dumps({"workload": first["request"]["workload"], "device": "GPU", "calls": calls}), flush=True)
for line in sys.stdin:
    if cost == "fsdp_unit":
        print("[1, 2", flush=True)
        continue
    count = json.loads(line)["iterations"]
    turn = {"issue_s": [0.5] * count, "kept_pace": [True] * count}
    if cost == "transfer":
        turn |= {"baseline_s": [0.25] * count, "baseline_kept_pace": [True] * count}
    print(json.dumps(turn), flush=True)
"""


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(path))
    return path


def alive(pids: Path) -> list[int]:
    started = [int(line) for line in pids.read_text().split()]
    assert started
    return [pid for pid in started if (state := process_state(pid)) is not None and state.letter not in "ZX"]


def test_processes_that_crash_or_hang_do_not_end_the_others(pids: Path) -> None:
    request = HostRequest(WORKLOAD, Precision.BF16, rounds=3, iterations=2, limit_s=8)
    seen: list[str] = []
    found = measure_host(request, lambda *said: seen.append(said[2]), command=[sys.executable, "-c", PROGRAM])
    notes = {cost: each.note for cost, each in found.costs.items()}
    assert notes[Cost.TENSOR_COLLECTIVE] == "its process was ended by SIGKILL: the driver is gone"
    assert (notes[Cost.SEQUENCE_COLLECTIVE] or "").startswith("no answer in ")
    assert notes[Cost.UNIT] == "its process answered with something else than JSON"
    assert notes[Cost.TRANSFER] is None
    assert found.costs[Cost.TRANSFER].each_s == 0.125
    assert found.device_name == "GPU"
    assert found.issue_s.keys() == {"one_rank", "pipeline_parallel", "fewer_layers", "other_layers"}
    assert seen[0] == "one_rank: ready"
    assert seen[-1] == "round 3 of 3"
    assert alive(pids) == []
    data = json.loads(json.dumps(found.as_json()))
    assert data["costs"]["transfer"] == {
        "calls": 2,
        "seconds": 0.125,
        "spread_s": {"median": 0.125, "q1": 0.125, "q3": 0.125, "n": 3},
        "note": None,
    }
    assert data["costs"]["tensor_collective"]["seconds"] is None


def test_an_interruption_ends_the_processes(pids: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    request = HostRequest(WORKLOAD, Precision.BF16, rounds=3, limit_s=60)
    with pytest.raises(KeyboardInterrupt):
        measure_host(request, interrupt, command=[sys.executable, "-c", PROGRAM])
    assert alive(pids) == []


def test_a_model_that_the_engine_does_not_train_is_refused_before_anything_starts() -> None:
    window = WORKLOAD.model_copy(update={"sliding_window": 64})
    with pytest.raises(SpecError, match="sliding_window"):
        measure_host(HostRequest(window, Precision.BF16), command=["/nonexistent"])
