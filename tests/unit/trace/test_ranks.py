"""Across ranks: matching, wait and transfer, skew, stragglers, imbalance; against the job that was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.tracefiles import Made, make_job
from wirecost.breakdown import Source
from wirecost.trace import TraceError, TraceSet, read


def load(tmp_path: Path, made: list[Made], **options: Any) -> TraceSet:
    for m in made:
        (tmp_path / f"rank{m.rank}.json").write_bytes(m.text)
    return read(tmp_path, **options)


def codes(traces: TraceSet) -> dict[str, int]:
    return {p.code: p.count or 0 for p in traces.run_diagnostics}


@pytest.fixture
def job() -> list[Made]:
    return make_job(4, 5, seed=31, late=2)


def test_skew_wait_and_transfer_are_those_of_the_job(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, job)
    assert len(traces.matched) == 5
    for k, m in enumerate(traces.matched):
        starts = [made.collectives[k][1] for made in job]
        ends = [made.collectives[k][2] for made in job]
        assert m.start_ns.tolist() == starts
        assert m.end_ns.tolist() == ends
        assert m.start_skew_ns == max(starts) - min(starts)
        assert m.end_skew_ns == max(ends) - min(ends)
        assert m.wait_ns.tolist() == [max(starts) - s for s in starts]
        assert m.transfer_ns.tolist() == [e - max(starts) for e in ends]
        assert m.last_rank == starts.index(max(starts)) == 2
        assert m.basis == "aligned"
        assert m.iteration == f"ProfilerStep#{k + 3}"
        assert m.bytes == 2_000_000
    assert [m.first for m in traces.matched] == [True, False, False, False, False]
    assert codes(traces) == {"first_collective": 1}


def test_rows_add_up(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, job)
    assert len(traces.traces) == len(traces.collective_rows) == 4
    for row, made in zip(traces.collective_rows, job, strict=True):
        total = sum(e - s for _, s, e in made.collectives)
        assert (row.rank, row.op, row.group, row.group_size) == (made.rank, "all_reduce", "0 (default_pg)", 4)
        assert (row.count, row.matched, row.bytes, row.duration_ns) == (5, 5, 10_000_000, total)
        assert row.wait_ns is not None and row.transfer_ns is not None
        assert row.wait_ns + row.transfer_ns == total
        assert row.algbw_Bps == pytest.approx(10_000_000 / (row.transfer_ns * 1e-9))
        assert row.busbw_Bps == pytest.approx(1.5 * 10_000_000 / (row.transfer_ns * 1e-9))
        assert row.bandwidth_from == "transfer"
    for trace in traces.traces:
        assert trace.parts is not None
        assert int(trace.calls.exposed_ns.sum()) == trace.parts.exposed_comm_ns


def test_the_straggler_is_named_with_its_cost(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, job)
    worst = traces.stragglers[0]
    cost = delay = 0
    for k in range(1, 5):  # the first after the profiler's start doesn't count
        starts = sorted(made.collectives[k][1] for made in job)
        cost += sum(starts[-1] - s for s in starts)
        delay += starts[-1] - starts[-2]
    assert (worst.rank, worst.late, worst.collectives) == (2, 4, 4)
    assert (worst.cost_ns, worst.delay_ns) == (cost, delay)
    assert any("rank 2 is last in 4 of 4" in line for line in traces.summary)


def test_imbalance_compares_compute_over_ranks(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, job)
    step = traces.imbalance[0]
    times = [t.iterations[0].parts.compute_ns for t in traces.traces]
    assert (step.min_ns, step.max_ns, step.mean_ns) == (min(times), max(times), sum(times) / 4)
    assert step.slowest_rank == times.index(max(times))


def test_one_rank_knows_no_wait(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, job[:1])
    (row,) = traces.collective_rows
    assert (row.wait_ns, row.transfer_ns, row.basis, row.bandwidth_from) == (None, None, None, "duration")
    assert traces.world_size == 4
    assert traces.matched == []


def test_some_of_the_ranks_bound_the_transfer(tmp_path: Path, job: list[Made]) -> None:
    assert {m.basis for m in load(tmp_path, job[:3]).matched} == {"partial"}


def shifted(made: Made, ns: int) -> Made:
    document = json.loads(made.text)
    document["baseTimeNanoseconds"] += ns
    return Made(made.rank, json.dumps(document).encode(), made.collectives)


def test_a_clock_that_is_off_is_told_by_the_collectives_and_taken_out(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, [job[0], job[1], job[2], shifted(job[3], 10**9)])
    assert {m.basis for m in traces.matched} == {"aligned"}
    for k, m in enumerate(traces.matched):
        starts = [made.collectives[k][1] for made in job]
        # Ends differ by up to two nanoseconds, which is all that the estimate leaves open.
        assert m.wait_ns.tolist() == pytest.approx([max(starts) - s for s in starts], abs=3)
        assert m.last_rank == 2
    (off,) = [c for c in traces.clocks if c.taken_out]
    assert (off.rank, off.reference_rank, off.collectives) == (3, 0, 5)
    assert off.offset_ns == pytest.approx(10**9, abs=2)
    assert codes(traces) == {"first_collective": 1, "clock_offsets": 1}


def test_clocks_that_disagree_over_few_collectives_fall_back_to_the_shortest_duration(tmp_path: Path) -> None:
    job = make_job(4, 2, seed=31, late=2)
    traces = load(tmp_path, [job[0], job[1], job[2], shifted(job[3], 10**9)])
    assert {m.basis for m in traces.matched} == {"shortest"}
    for k, m in enumerate(traces.matched):
        lengths = [e - s for _, s, e in (made.collectives[k] for made in job)]
        assert m.wait_ns.tolist() == [n - min(lengths) for n in lengths]
        assert m.start_skew_ns is None
        assert m.last_rank == lengths.index(min(lengths))
    assert codes(traces)["clocks_not_aligned"] == 2


def test_relative_clocks_without_a_base_are_aligned_by_collectives_or_not_compared(tmp_path: Path) -> None:
    job = make_job(2, 4, seed=32, base=None)
    traces = load(tmp_path, job)
    assert {m.basis for m in traces.matched} == {"aligned"}
    for k, m in enumerate(traces.matched):
        starts = [made.collectives[k][1] for made in job]
        assert m.wait_ns.tolist() == pytest.approx([max(starts) - s for s in starts], abs=3)
    traces = load(tmp_path, make_job(2, 2, seed=32, base=None))
    assert {m.basis for m in traces.matched} == {"shortest"}
    assert "clocks_not_aligned" not in codes(traces)


def without_collective(made: Made, which: int) -> Made:
    document = json.loads(made.text)
    events = document["traceEvents"]
    found = [e for e in events if "nccl" in str(e.get("name"))]
    events.remove(found[which])
    return Made(made.rank, json.dumps(document).encode(), made.collectives)


def test_a_profiler_that_started_later_is_matched_by_time(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, [job[0], without_collective(job[1], 0), job[2], job[3]])
    assert len(traces.matched) == 4
    assert [m.last_rank for m in traces.matched] == [2] * 4
    rows = {r.rank: r for r in traces.collective_rows}
    assert (rows[0].count, rows[0].matched, rows[0].bandwidth_from) == (5, 4, "duration")


def test_what_cannot_be_matched_is_counted_not_guessed(tmp_path: Path, job: list[Made]) -> None:
    traces = load(tmp_path, [job[0], without_collective(job[1], 2), job[2], job[3]])
    assert traces.matched == []
    assert codes(traces) == {"unmatched_collectives": 5}


def test_sequence_numbers_match_whatever_is_missing(tmp_path: Path, job: list[Made]) -> None:
    numbered = []
    for made in job:
        document = json.loads(made.text)
        found = [e for e in document["traceEvents"] if "nccl" in str(e.get("name"))]
        for number, event in enumerate(found):
            event["args"]["Seq"] = number + 100
        numbered.append(Made(made.rank, json.dumps(document).encode(), made.collectives))
    traces = load(tmp_path, [numbered[0], without_collective(numbered[1], 2), numbered[2], numbered[3]])
    assert len(traces.matched) == 4
    starts = [[made.collectives[k][1] for made in job] for k in (0, 1, 3, 4)]
    assert [m.start_ns.tolist() for m in traces.matched] == starts


def test_groups_of_one_name_but_other_members_are_apart(tmp_path: Path, job: list[Made]) -> None:
    for made in job[2:]:
        made.text = made.text.replace(b"[0, 1, 2, 3]", b"[2, 3]")
    for made in job[:2]:
        made.text = made.text.replace(b"[0, 1, 2, 3]", b"[0, 1]")
    traces = load(tmp_path, job)
    assert {m.ranks for m in traces.matched} == {(0, 1), (2, 3)}


def test_without_process_groups_the_order_matches_and_that_is_said(tmp_path: Path) -> None:
    traces = load(tmp_path, make_job(3, 4, seed=33, arguments=False))
    assert len(traces.matched) == 4
    assert codes(traces) == {"first_collective": 1, "matched_by_order": 4}
    assert all(r.bytes is None and r.busbw_Bps is None for r in traces.collective_rows)


def test_two_files_of_one_rank_are_refused_with_both_names(tmp_path: Path, job: list[Made]) -> None:
    (tmp_path / "a.json").write_bytes(job[1].text)
    (tmp_path / "b.json").write_bytes(job[1].text)
    with pytest.raises(TraceError, match=r"a\.json.*b\.json.*both claim rank 1"):
        read(tmp_path)
    traces = read(tmp_path, ranks=["b.json=0"])
    assert [t.rank for t in traces.traces] == [0, 1]


def test_several_files_without_ranks_are_refused_one_is_not(tmp_path: Path) -> None:
    for name, made in zip("ab", make_job(2, 1, info=False), strict=True):
        (tmp_path / f"{name}.json").write_bytes(made.text)
    with pytest.raises(TraceError, match="its rank is unknown"):
        read(tmp_path)
    assert read(tmp_path / "a.json").traces[0].rank is None
    assert [t.rank for t in read(tmp_path, ranks=["a.json=5", "b.json=3"]).traces] == [3, 5]


def test_one_unreadable_file_among_many_is_a_loss_not_the_end(tmp_path: Path, job: list[Made]) -> None:
    (tmp_path / "rank9.json").write_bytes(b"")
    traces = load(tmp_path, job)
    assert len(traces.traces) == 4
    assert codes(traces)["unreadable"] == 1
    assert any("unreadable" in line for line in traces.summary)


def test_a_world_without_communication_is_shouted_about(tmp_path: Path) -> None:
    (made,) = make_job(2, 2, seed=34, arguments=False)[:1]
    made.text = made.text.replace(b"ncclDevKernel_AllReduce", b"my_own_exchange")
    traces = load(tmp_path, [made])
    assert [p.code for p in traces.traces[0].diagnostics] == ["no_communication"]
    assert any(line.startswith("warning no_communication:") for line in traces.summary)
    assert any(line.startswith("->") and "--comm-pattern" in line for line in traces.summary)
    told = load(tmp_path, [made], comm_patterns=["^my_own"]).traces[0]
    assert ([p.code for p in told.diagnostics], len(told.calls)) == (["bytes_unknown"], 2)


def test_the_breakdown_is_an_imported_one(tmp_path: Path, job: list[Made]) -> None:
    breakdown = load(tmp_path, job).breakdown
    assert breakdown.source is Source.IMPORTED
    assert breakdown.world_size == 4
    assert len(breakdown.iterations) == 4 * 4  # of 4 * 5: the last window lacks the host's time behind it
    assert len(breakdown.collectives) == 4
    again = type(breakdown).model_validate_json(breakdown.model_dump_json())
    assert again == breakdown


def test_tables_have_their_columns_even_when_empty(tmp_path: Path, job: list[Made]) -> None:
    from wirecost.trace.tables import NAMES

    full, single = load(tmp_path, job), read(tmp_path / "rank0.json")
    for name in NAMES:
        assert full.table(name).schema == single.table(name).schema
    assert full.iterations.height == 20
    assert full.skew.height == 5 and single.skew.height == 0
    assert full.calls["wait_ns"].null_count() == 0 and single.calls["wait_ns"].null_count() == 5
    with pytest.raises(TraceError, match="iterations"):
        full.table("iteration")


def test_workers_give_what_one_process_gives(
    tmp_path: Path, job: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirecost.trace import pool

    alone = load(tmp_path, job, jobs=1, timeline=True)
    (tmp_path / "rank7.json").write_bytes(b"junk")
    monkeypatch.setattr(pool, "_SMALL_BYTES", 0)
    seen: list[tuple[int, int]] = []
    together = read(tmp_path, jobs=2, timeline=True, progress=lambda done, total: seen.append((done, total)))
    assert json.dumps(together.to_dict()["ranks"]) == json.dumps(alone.to_dict()["ranks"])
    assert codes(together)["unreadable"] == 1
    total = sum(p.stat().st_size for p in tmp_path.iterdir())
    assert seen[-1] == (total, total)


def test_ranks_of_a_group_may_be_a_list_of_numbers(tmp_path: Path, job: list[Made]) -> None:
    for made in job:
        members = b"[0, 1]" if made.rank < 2 else b"[2, 3]"
        made.text = made.text.replace(b'"[0, 1, 2, 3]"', members)
    assert {m.ranks for m in load(tmp_path, job).matched} == {(0, 1), (2, 3)}


def test_sends_and_receives_have_no_wait_by_position(tmp_path: Path) -> None:
    """In a ring each rank sends, then receives: the first send of one isn't the first send of the other."""
    ranks = make_job(2, 6, seed=34)
    for made in ranks:
        pieces = made.text.split(b'"allreduce"')
        operations = (b'"send"', b'"recv"', b'"allreduce"') * 2
        if made.rank == 1:
            operations = (b'"recv"', b'"send"', b'"allreduce"', *operations[3:])
        made.text = pieces[0] + b"".join(op + rest for op, rest in zip(operations, pieces[1:], strict=True))
    traces = load(tmp_path, ranks)
    assert [m.op for m in traces.matched] == ["all_reduce"] * 2
    assert [m.start_ns.tolist() for m in traces.matched] == [
        [made.collectives[k][1] for made in ranks] for k in (2, 5)
    ]
    assert {r.wait_ns for r in traces.collective_rows if r.op in ("send", "recv")} == {None}
    assert codes(traces) == {"point_to_point": 8}


def test_profilers_that_recorded_other_steps_are_not_matched_by_order(tmp_path: Path) -> None:
    first, second = make_job(2, 3, seed=35)
    for number in (5, 4, 3):
        second.text = second.text.replace(b"ProfilerStep#%d" % number, b"ProfilerStep#%d" % (number + 1))
    traces = load(tmp_path, [first, shifted(second, 10**9)])
    assert traces.matched == []
    assert codes(traces) == {"unmatched_collectives": 3}


def test_the_lost_time_holds_all_of_the_time_that_is_lost(tmp_path: Path) -> None:
    """Also the communication that could not be matched over the ranks, here a third of it."""
    ranks = make_job(2, 6, seed=36, late=0)
    for made in ranks:
        pieces = made.text.split(b'"[0, 1]"')
        alone = b'"[%d, 9]"' % made.rank
        members = (b'"[0, 1]"', b'"[0, 1]"', alone) * 2
        made.text = pieces[0] + b"".join(m + rest for m, rest in zip(members, pieces[1:], strict=True))
    traces = load(tmp_path, ranks)
    shares = {f.code: f.share for f in traces.lost_time}
    parts = [i.parts for i in traces.breakdown.iterations]
    exposed = sum(p.exposed_comm_ns for p in parts) / sum(p.window_ns for p in parts)
    assert shares["exposed_unmatched"] > 0.05
    assert shares["exposed_wait"] + shares["exposed_transfer"] + shares["exposed_unmatched"] == pytest.approx(
        exposed
    )


def test_a_cut_step_is_no_imbalance_and_not_in_the_summary(tmp_path: Path) -> None:
    ranks = make_job(2, 3, seed=37)
    begins = ranks[1].collectives[2][1]
    document = json.loads(ranks[1].text)
    events = [e for e in document["traceEvents"] if e.get("cat") != "Trace"]
    end = (begins - document["baseTimeNanoseconds"]) / 1000 - 5
    late = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy") and e["ts"] > end - 15]
    document["traceEvents"] = [
        e | {"ts": end} if e["name"] == "Record Window End" else e for e in events if e not in late
    ]
    ranks[1].text = json.dumps(document).encode()
    traces = load(tmp_path, ranks)
    assert [i.window.cut for i in traces.traces[1].iterations] == [False, False, True]
    assert [i.iteration for i in traces.imbalance] == ["ProfilerStep#3", "ProfilerStep#4"]
    kept = traces.breakdown.iterations
    idle = sum(i.parts.idle_ns for i in kept) / sum(i.parts.window_ns for i in kept)
    assert {f.code: f.share for f in traces.lost_time}["idle"] == pytest.approx(idle)


def test_the_advice_is_about_the_rank_that_is_late(tmp_path: Path) -> None:
    """Kernels of random length: some rank always computes longer than the mean in some step. That isn't why rank 2,
    which the host holds up, comes late."""
    traces = load(tmp_path, make_job(4, 6, seed=0, kernels=12, late=2))
    (wait,) = [f for f in traces.lost_time if f.code == "exposed_wait"]
    assert max(i.excess for i in traces.imbalance) > 0.05
    assert "rank 2 is last" in wait.diagnostic.message
    assert "computes no longer than the others" in wait.diagnostic.message
    assert "balance" not in (wait.diagnostic.remedy or "")
