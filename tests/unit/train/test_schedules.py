"""Pipeline schedules on paper: every rank gets through, in the order that the papers say."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from wirecost.spec import PipelineSchedule
from wirecost.train.parallel.schedules import SCHEDULES, Action, gpipe, interleaved, one_f_one_b


def written(actions: list[Action]) -> str:
    return " ".join(f"{'F' if a.forward else 'B'}{a.chunk}.{a.micro_batch}" for a in actions)


def test_one_f_one_b_fills_the_pipeline_then_takes_turns() -> None:
    assert written(one_f_one_b(0, 2, 3)) == "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2"
    assert written(one_f_one_b(1, 2, 3)) == "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2"
    assert written(one_f_one_b(0, 4, 2)) == "F0.0 F0.1 B0.0 B0.1"


def test_gpipe_runs_all_forwards_first() -> None:
    assert written(gpipe(0, 2, 2)) == "F0.0 F0.1 B0.0 B0.1"


def test_interleaved_goes_through_its_chunks_pipeline_by_pipeline() -> None:
    assert written(interleaved(1, 2, 2, 2)) == "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1"


@given(
    schedule=st.sampled_from(sorted(SCHEDULES)),
    ranks=st.integers(2, 5),
    rounds=st.integers(1, 4),
    extra=st.integers(0, 3),
    chunks=st.integers(2, 3),
)
def test_every_schedule_runs_everything_once_and_never_waits_for_ever(
    schedule: PipelineSchedule, ranks: int, rounds: int, extra: int, chunks: int
) -> None:
    is_interleaved = schedule is PipelineSchedule.INTERLEAVED
    chunks = chunks if is_interleaved else 1
    micro_batches = ranks * rounds + (0 if is_interleaved else extra)
    plans = [SCHEDULES[schedule](rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    everything = {Action(f, c, m) for f in (True, False) for c in range(chunks) for m in range(micro_batches)}
    assert len(plans) == ranks
    assert all(len(p) == len(everything) and set(p) == everything for p in plans)

    last = ranks * chunks - 1
    done: set[tuple[bool, int, int]] = set()
    places = [0] * ranks
    while any(place < len(p) for place, p in zip(places, plans, strict=True)):
        before = len(done)
        for rank, plan in enumerate(plans):
            while places[rank] < len(plan):
                action = plan[places[rank]]
                stage = action.chunk * ranks + rank
                if action.forward:
                    needs = {(True, stage - 1, action.micro_batch)} if stage else set()
                else:
                    needs = {(stage == last, stage if stage == last else stage + 1, action.micro_batch)}
                if not needs <= done:
                    break
                done.add((action.forward, stage, action.micro_batch))
                places[rank] += 1
        assert len(done) > before, "every rank waits for another"


@given(ranks=st.integers(2, 5), rounds=st.integers(1, 4), chunks=st.integers(1, 3))
def test_both_ends_of_a_boundary_keep_one_order(ranks: int, rounds: int, chunks: int) -> None:
    schedule = interleaved if chunks > 1 else one_f_one_b
    plans = [schedule(rank, ranks, ranks * rounds, chunks) for rank in range(ranks)]
    assert len(plans) == ranks > 0 and all(len(plan) == 2 * chunks * ranks * rounds for plan in plans)
    for forward in (True, False):
        # What a rank sends on, and what the next one takes, wrapping from the last rank to the first apart.
        for rank in range(ranks):
            after = (rank + 1) % ranks
            wraps = after == 0
            near = [
                (a.chunk, a.micro_batch)
                for a in plans[rank]
                if a.forward is forward and not (wraps and a.chunk == chunks - 1)
            ]
            far = [
                (a.chunk - wraps, a.micro_batch)
                for a in plans[after]
                if a.forward is forward and not (wraps and a.chunk == 0)
            ]
            assert near == far
