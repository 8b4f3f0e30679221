"""From raw samples to a breakdown: matching over ranks, wait and transfer, diagnostics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.results import STUDY
from wirecost.emulation.probe import LinkMeasurement
from wirecost.spec import Device, Study, parse_yaml, validate
from wirecost.study.collect import IncompleteSamplesError, collect
from wirecost.units import Seconds

EXPERIMENT = validate(Study, parse_yaml(STUDY, "s"), "s").model_experiments()[0].model_copy(
    update={"iterations": 2, "warmup": 1}
)  # fmt: skip


def sample(number: int, start: int, comm_start: int, end: int, *, size: int = 10_000_000) -> dict[str, Any]:
    return {
        "iteration": number,
        "warmup": number == 0,
        "loss": 1.0,
        "start_ns": start,
        "end_ns": end,
        "phases": {"forward": comm_start - start, "grad_sync": end - comm_start, "other": 0},
        "parts": {
            "window_ns": end - start, "compute_only_ns": comm_start - start, "overlapped_ns": 0,
            "exposed_comm_ns": end - comm_start, "exposed_memory_ns": 0, "idle_ns": 0,
        },
        "communications": [
            {"op": "all_reduce", "group": "data_parallel", "ranks": [0, 1], "size_bytes": size,
             "start_ns": comm_start, "end_ns": end},
        ],
    }  # fmt: skip


def write(folder: Path, *ranks: list[dict[str, Any]], link: bool = True) -> Path:
    (folder / "samples").mkdir(parents=True)
    for rank, samples in enumerate(ranks):
        (folder / "samples" / f"rank-{rank}.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    if link:
        measured = LinkMeasurement(
            nominal_rate_bps=1e9, rates_bps=(0.99e9, 0.8e9), round_trip_ns=20_000, unshaped_bytes=250_000
        )
        (folder / "link.json").write_text(measured.model_dump_json())
    return folder


def test_wait_ends_when_the_last_rank_starts(tmp_path: Path) -> None:
    write(
        tmp_path,
        [sample(0, 0, 1, 2), sample(1, 100, 200, 500), sample(2, 600, 900, 1000)],
        [sample(0, 0, 1, 2), sample(1, 100, 300, 510), sample(2, 600, 700, 1000)],
    )
    breakdown = collect(EXPERIMENT, tmp_path, cores=8)
    first, second = breakdown.collectives
    # Rank 0 waits 100 ns for rank 1, which waits 200 ns in the next iteration; the warm-up counts nowhere.
    assert (first.wait_ns, first.transfer_ns) == (100, 200 + 100)
    assert (second.wait_ns, second.transfer_ns) == (200, 210 + 100)
    assert (first.count, first.bytes) == (2, 20_000_000)
    assert first.transfer_median_ns == 150
    assert first.busbw_Bps == pytest.approx(20_000_000 / 300e-9)
    # Two all-reduces of 10 MB over the slowest link, 0.8 Gb/s: n = 2 sends each byte once.
    assert first.expected_ns == pytest.approx(2 * 10e6 * 8 / 0.8)
    assert breakdown.iteration_times_ns() == [410, 400]
    assert breakdown.diagnostics == ()


def test_short_messages_and_shared_cores_are_pointed_out(tmp_path: Path) -> None:
    rank = [sample(n, 0, 10, 20, size=100_000) for n in range(3)]
    codes = {w.code for w in collect(EXPERIMENT, write(tmp_path, rank, rank), cores=1).diagnostics}
    assert codes == {"short_messages", "shared_cores"}


@pytest.mark.parametrize(("busy", "codes"), [(0.5, {"busy_machine"}), (0.05, set()), (None, set())])
def test_a_busy_machine_is_pointed_out(tmp_path: Path, busy: float | None, codes: set[str]) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    (tmp_path / "machine.json").write_text(json.dumps({"busy_fraction_before": busy}))
    assert {w.code for w in collect(EXPERIMENT, write(tmp_path, rank, rank), cores=8).diagnostics} == codes


@pytest.mark.parametrize(("during", "codes"), [(0.5, {"busy_machine"}), (0.05, set()), (None, set())])
def test_programs_that_started_later_are_pointed_out(
    tmp_path: Path, during: float | None, codes: set[str]
) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    machine = {"busy_fraction_before": 0.0, "others_fraction_during": during}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    assert {w.code for w in collect(EXPERIMENT, write(tmp_path, rank, rank), cores=8).diagnostics} == codes


@pytest.mark.parametrize(("again", "codes"), [(50, {"tcp_retransmits"}), (1, set()), (None, set())])
def test_segments_sent_again_are_counted_and_many_pointed_out(
    tmp_path: Path, again: int | None, codes: set[str]
) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    if again is not None:
        (tmp_path / "tcp.json").write_text(json.dumps({"sent": 1000, "retransmitted": again}))
    found = collect(EXPERIMENT, write(tmp_path, rank, rank), cores=8)
    assert {w.code for w in found.diagnostics} == codes
    assert found.network is not None
    assert found.network.tcp_retransmitted == (None if again is None else again / 1000)


def test_segments_that_only_overtook_each_other_are_told_from_lost_ones(tmp_path: Path) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    folder = write(tmp_path, rank, rank)
    (folder / "tcp.json").write_text(json.dumps({"sent": 1000, "retransmitted": 50}))
    link = json.loads((folder / "link.json").read_text())
    messages = []
    for in_order in (True, None, False):
        (folder / "link.json").write_text(json.dumps(link | {"in_order": in_order}))
        (warning,) = collect(EXPERIMENT, folder, cores=8).diagnostics
        messages.append(f"{warning.message} -> {warning.remedy}")
    assert "were lost," in messages[0] and "lost or overtook" in messages[1] and "as root itself" in messages[2]


def test_ranks_that_never_talked_are_shouted_about(tmp_path: Path) -> None:
    rank = [sample(n, 0, 10, 20) | {"communications": []} for n in range(3)]
    codes = {w.code for w in collect(EXPERIMENT, write(tmp_path, rank, rank), cores=8).diagnostics}
    assert "ranks_trained_apart" in codes


def test_missing_iterations_are_an_error(tmp_path: Path) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    with pytest.raises(IncompleteSamplesError, match="rank 1 left 2 of 3 iterations"):
        collect(EXPERIMENT, write(tmp_path, rank, rank[:2]), cores=8)


def test_a_least_time_brings_every_rank_as_many_iterations_more(tmp_path: Path) -> None:
    longer = EXPERIMENT.model_copy(update={"min_time": Seconds(1)})
    rank = [sample(n, 0, 10, 20) for n in range(5)]
    found = collect(longer, write(tmp_path / "more", rank, rank), cores=8)
    assert len(found.iterations) == 2 * 4
    (short,) = (w for w in found.diagnostics if w.code == "measured_short")
    assert "s of min_time's 1, 4 iterations" in short.message
    enough = EXPERIMENT.model_copy(update={"min_time": Seconds(5e-8)})
    codes = {w.code for w in collect(enough, write(tmp_path / "enough", rank, rank), cores=8).diagnostics}
    assert "measured_short" not in codes
    for name, left, said in (("fewer", rank[:4], "4 of 5"), ("less", rank[:2], "2 of 3")):
        with pytest.raises(IncompleteSamplesError, match=f"left {said} iterations"):
            collect(longer, write(tmp_path / name, left if name == "less" else rank, left), cores=8)
    with pytest.raises(IncompleteSamplesError, match="5 of 3"):
        collect(EXPERIMENT, write(tmp_path / "unasked", rank, rank), cores=8)


@pytest.mark.parametrize("link", [False, True])
def test_without_a_capped_and_measured_link_nothing_is_expected(tmp_path: Path, link: bool) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    folder = write(tmp_path, rank, rank, link=link)
    if link:
        uncapped = json.loads((folder / "link.json").read_text()) | {"nominal_rate_bps": None}
        (folder / "link.json").write_text(json.dumps(uncapped))
    breakdown = collect(EXPERIMENT, folder, cores=8)
    assert {c.expected_ns for c in breakdown.collectives} == {None}


NCCL_LOG = """\
host{rank}:10:10 [0] NCCL INFO comm 0x{rank}1 rank {rank} nranks 2 cudaDev {rank} busId {rank} commId 0xab - Init START
host{rank}:10:10 [0] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {other}[{other}] [send] via {via}
host{rank}:10:10 [0] NCCL INFO comm 0x{rank}1 rank {rank} nranks 2 cudaDev {rank} busId {rank} commId 0xab - Init COMPLETE
"""


@pytest.mark.parametrize(
    ("via", "transport", "codes"),
    [("NET/Socket/0", "tcp", set()), ("NET/IB/0", "rdma", {"transport_not_as_asked"})],
)
def test_a_gpu_run_is_labelled_with_what_nccl_reported(
    tmp_path: Path, via: str, transport: str, codes: set[str]
) -> None:
    rank = [sample(n, 0, 10, 20) for n in range(3)]
    folder = write(tmp_path, rank, rank)
    (folder / "logs").mkdir()
    for r in (0, 1):
        (folder / "logs" / f"nccl-{r}.log").write_text(NCCL_LOG.format(rank=r, other=1 - r, via=via))
    breakdown = collect(EXPERIMENT.model_copy(update={"device": Device.CUDA}), folder, cores=8)
    assert breakdown.network is not None
    assert breakdown.network.transport == transport
    assert {w.code for w in breakdown.diagnostics} == codes


def test_calls_under_way_at_once_have_no_bandwidth_of_their_own(tmp_path: Path) -> None:
    rank = [sample(n, 100 * n, 100 * n + 10, 100 * n + 50) for n in range(3)]
    for s in rank:
        second = dict(s["communications"][0])
        second["start_ns"] += 20
        s["communications"].append(second)
    assert {c.busbw_Bps for c in collect(EXPERIMENT, write(tmp_path, rank, rank), cores=8).collectives} == {None}
