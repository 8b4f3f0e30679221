"""How many transfers a pipeline waits for: the closed form against the engine's schedules, played through."""

from __future__ import annotations

import pytest

from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.pipeline import received_hops
from wirecost.spec import PipelineSchedule
from wirecost.train.parallel.schedules import SCHEDULES

HOP = 0.1


def played(kind: PipelineSchedule, ranks: int, micro_batches: int, chunks: int, hop: float) -> float:
    """The end of the last action where forward through a rank takes 1, backward 2, and a transfer begins once the
    message is there and its receiver waits for it."""
    plans = [SCHEDULES[kind](rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    now, done, last = [0.0] * ranks, {}, ranks * chunks - 1
    left = [list(plan) for plan in plans]
    while any(left):
        for rank in range(ranks):
            while left[rank]:
                action = left[rank][0]
                stage = action.chunk * ranks + rank
                source = stage - 1 if action.forward else stage + 1
                if 0 <= source <= last:
                    key = (action.forward, source, action.micro_batch)
                    if key not in done:
                        break
                    now[rank] = max(now[rank], done[key]) + hop
                now[rank] += (1 if action.forward else 2) / chunks
                done[action.forward, stage, action.micro_batch] = now[rank]
                left[rank].pop(0)
    return max(now)


@pytest.mark.parametrize(
    ("kind", "ranks", "chunks"),
    [
        *((kind, ranks, 1) for kind in ("gpipe", "1f1b") for ranks in (2, 3, 4, 8)),
        *(("interleaved", ranks, chunks) for ranks in (2, 4, 8) for chunks in (2, 4)),
    ],
)
def test_transfers_waited_for(kind: str, ranks: int, chunks: int) -> None:
    schedule = PipelineSchedule(kind)
    # Of interleaved schedules some transfers lie under others' compute: some fewer.
    tolerance = 0.25 if kind == "interleaved" else 1e-6
    counts = [ranks, 2 * ranks, 4 * ranks]
    waited = [
        played(schedule, ranks, count, chunks, HOP) - played(schedule, ranks, count, chunks, 0) for count in counts
    ]
    said = [
        received_hops(
            Layout(1.0, float(ranks), 1.0, 1.0, float(count), float(chunks), gpipe=float(kind == "gpipe"))
        )
        for count in counts
    ]
    assert said == [pytest.approx(hops / HOP, rel=tolerance) for hops in waited]
