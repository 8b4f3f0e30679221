"""The profiled window, read from traces of Kineto's shape."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from support.results import STUDY
from wirecost.breakdown import Profile
from wirecost.spec import Study, parse_yaml, validate
from wirecost.spec.experiment import ADDED_PLAN_KEYS, ADDED_WORKLOAD_KEYS
from wirecost.study.profiled import read_profile

BEFORE = validate(Study, parse_yaml(STUDY, "s"), "s").model_experiments()[0]
EXPERIMENT = BEFORE.model_copy(update={"profile_iterations": 2})


def span(category: str, name: str, start_us: float, end_us: float, thread: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": thread, "ts": start_us, "dur": end_us - start_us,
        "args": {"device": 0, "stream": thread},
    }  # fmt: skip


def step(number: int, *, gpu: bool = True, comm: bool = True) -> list[dict[str, Any]]:
    """1000 us in which compute runs from 0 to 600 and an all-reduce from 400 to 900."""
    at = 10_000 + 1000 * number
    events = [
        span("user_annotation", f"ProfilerStep#{number}", at, at + 1000, 1),
        span("cpu_op", "aten::mm", at, at + 100, 1),
    ]
    if gpu:
        events += [
            span("gpu_user_annotation", f"ProfilerStep#{number}", at, at + 1000, 7),
            span("kernel", "ampere_sgemm_128x64_nn", at, at + 600, 7),
        ]
    if gpu and comm:
        events.append(span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 400, at + 900, 20))
    return events


def profile(folder: Path, *ranks: list[dict[str, Any]]) -> Profile:
    (folder / "traces").mkdir()
    for rank, events in enumerate(ranks):
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(ranks)},
            "traceEvents": events,
        }
        with gzip.open(folder / "traces" / f"rank-{rank}.json.gz", "wt") as file:
            json.dump(document, file)
    found = read_profile(EXPERIMENT, folder)
    assert found is not None
    return found


def test_hidden_and_exposed_communication_of_every_rank(tmp_path: Path) -> None:
    whole = step(1) + step(2)
    window = profile(tmp_path, whole, whole)
    assert window.reason is None
    assert [(i.rank, i.name) for i in window.iterations] == [
        (rank, f"ProfilerStep#{n}") for rank in (0, 1) for n in (1, 2)
    ]
    assert {(i.parts.overlapped_ns, i.parts.exposed_comm_ns) for i in window.iterations} == {(200_000, 300_000)}
    exposed = window.part_share("exposed_comm_ns")
    assert exposed is not None and exposed.median == pytest.approx(0.3)
    assert window.overlap() == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (step(1, gpu=False) + step(2, gpu=False), "no device time line in the trace"),
        (step(1), "the trace holds 1 complete iterations of 2"),
        (step(1, comm=False) + step(2, comm=False), "have no communication"),
        (step(1) + step(2) + [{**step(2)[-1], "cat": "surprise"}], "unknown category"),
    ],
)
def test_one_doubtful_rank_leaves_the_run_unknown(
    tmp_path: Path, events: list[dict[str, Any]], reason: str
) -> None:
    window = profile(tmp_path, step(1) + step(2), events)
    assert {i.rank for i in window.iterations} == {0}
    assert reason in (window.reason or "")
    assert (window.part_share("exposed_comm_ns"), window.overlap()) == (None, None)


def test_a_trace_that_is_missing_or_none(tmp_path: Path) -> None:
    assert read_profile(BEFORE, tmp_path) is None
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rank-1.json.gz").write_bytes(b"no trace")
    window = read_profile(EXPERIMENT, tmp_path)
    assert window is not None
    assert "left no trace: see logs/rank-0.log" in window.unknown[0].reason
    assert "can't be read" in window.unknown[1].reason


def test_results_from_before_the_setting_are_still_the_experiments() -> None:
    content = BEFORE.model_dump(mode="json")
    del content["profile_iterations"], content["min_time"], content["repeat"], content["memory"]
    for key in ADDED_WORKLOAD_KEYS:
        del content["workload"][key]
    content["fabric"] = content.pop("network")
    for key in ADDED_PLAN_KEYS:
        del content["plan"][key]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert BEFORE.digest == hashlib.sha256(text.encode()).hexdigest()[:10]
    assert BEFORE.digest != EXPERIMENT.digest
