"""The one cause: of simulated jobs in which it was provoked, and never the wrong rank."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.simulated_jobs import AllReduce, Busy, Kernel, Load, Send, Step, Synchronise, Wait, simulate
from support.tracefiles import make_job
from wirecost.trace import TraceSet, read
from wirecost.trace.answer import clipped

US = 1_000
END: list[Step] = [Wait(), Kernel(100 * US, name="adam"), Synchronise()]
HIDDEN: list[Step] = [AllReduce(300 * US), *[Kernel(200 * US) for _ in range(5)], AllReduce(50 * US)]


def kernels(count: int = 20, ns: int | Callable[[int, int], int] = 200 * US) -> list[Step]:
    return [Kernel(ns) for _ in range(count)]


def only(rank: int, value: int, others: int = 0) -> Callable[[int, int], int]:
    return lambda r, _: value if r == rank else others


def solve(folder: Path, program: list[Step], **options: Any) -> TraceSet:
    return read(simulate(folder, program, **options))


def test_a_host_that_starves_its_gpu_is_named_with_those_that_wait(tmp_path: Path) -> None:
    s = solve(tmp_path, [*kernels(60, 20 * US), *HIDDEN, *END], launch_ns=only(1, 60 * US, 6 * US))
    assert (s.answer.code, s.answer.ranks) == ("late_host", [1])
    assert s.answer.cause.startswith("Rank 1's host can't feed its GPU, 5")
    assert "rank 0 waits for it, " in s.answer.cause


Scenario = tuple[list[Step], dict[str, Any]]
SLOW: dict[str, tuple[Scenario, Scenario]] = {
    "host": (
        ([*kernels(60, 20 * US), *HIDDEN, *END], {"launch_ns": only(1, 60 * US, 6 * US)}),
        ([*kernels(60, 20 * US), *HIDDEN, *END], {}),
    ),
    "gpu": (([*kernels(ns=only(1, 300 * US, 200 * US)), *HIDDEN, *END], {}), ([*kernels(), *HIDDEN, *END], {})),
    "loader": (([Load(only(1, 4000 * US)), *kernels(), *HIDDEN, *END], {}), ([*kernels(), *HIDDEN, *END], {})),
    "everybody's loader": (([Load(4000 * US), *kernels(), *HIDDEN, *END], {}), ([*kernels(), *HIDDEN, *END], {})),
    "network": (
        ([*kernels(), AllReduce(3000 * US), *END], {}), ([*kernels(), AllReduce(1), *END], {}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_the_gain_is_a_close_upper_bound(tmp_path: Path, name: str) -> None:
    """Against the same job without what makes it slow."""
    (slow, options), (quick, others) = SLOW[name]
    s = solve(tmp_path / "slow", slow, **options)
    alike = solve(tmp_path / "quick", quick, **others)
    assert s.answer.gain_ns is not None and s.answer.iteration_ns is not None
    assert alike.answer.code == "nothing" and alike.answer.iteration_ns is not None
    won = s.answer.iteration_ns - alike.answer.iteration_ns
    assert 0.99 * won <= s.answer.gain_ns <= 1.1 * won


def test_a_slow_gpu_is_told_from_one_with_more_work(tmp_path: Path) -> None:
    slow = solve(tmp_path / "slow", [*kernels(ns=only(2, 300 * US, 200 * US)), *HIDDEN, *END], ranks=4)
    assert slow.answer.ranks == [2]
    assert slow.answer.code == "late_gpu"
    assert "the same kernels take" in slow.answer.cause
    extra = Kernel(200 * US, name="void extra_gemm<float>(float*)", count=only(0, 8))
    more = solve(tmp_path / "more", [*kernels(), extra, *HIDDEN, *END], ranks=4)
    assert more.answer.ranks == [0]
    assert more.answer.code == "late_work"
    assert "8 more extra_gemm an iteration" in more.answer.cause


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_data_loader_that_holds_everybody_up_is_named(tmp_path: Path, ranks: int) -> None:
    s = solve(tmp_path, [Load(4000 * US), *kernels(), *HIDDEN, *END], ranks=ranks)
    assert (s.answer.code, s.answer.ranks) == ("idle_data", [])
    assert "in the data loader" in s.answer.cause and "num_workers" in s.answer.next


def test_the_data_loader_of_one_rank_is_named(tmp_path: Path) -> None:
    s = solve(tmp_path, [Load(only(1, 4000 * US)), *kernels(), *HIDDEN, *END], ranks=4)
    assert (s.answer.code, s.answer.ranks) == ("late_data", [1])


def test_synchronising_in_the_step_is_told_from_slow_launches(tmp_path: Path) -> None:
    pieces: list[Step] = [p for _ in range(30) for p in (Kernel(40 * US), Synchronise(), Busy(40 * US))]
    s = solve(tmp_path / "sync", [*pieces, AllReduce(50 * US), *END])
    assert (s.answer.code, s.answer.ranks) == ("idle_synchronise", [])
    assert ".item()" in s.answer.next
    s = solve(tmp_path / "launch", [*kernels(100, 3 * US), AllReduce(30 * US), *END], launch_ns=20 * US)
    assert (s.answer.code, s.answer.ranks) == ("idle_host", [])
    assert "until the next kernel is launched" in s.answer.cause


def test_communication_that_nothing_hides_is_named_with_its_operation(tmp_path: Path) -> None:
    s = solve(tmp_path, [*kernels(), AllReduce(3000 * US), *END])
    assert (s.answer.code, s.answer.ranks) == ("exposed_transfer", [])
    assert "all_reduce in group 0" in s.answer.cause
    assert s.answer.gain_ns == pytest.approx(3000 * US, rel=0.02)
    alone = read(tmp_path / "rank0.json")
    assert alone.answer.code == "exposed_unsplit"
    assert "can't tell waiting from moving data" in alone.answer.cause


def test_ranks_that_take_turns_are_not_blamed(tmp_path: Path) -> None:
    s = solve(
        tmp_path, [Busy(lambda r, i: 3000 * US if (7 * i + 3) % 4 == r else 0), *kernels(), AllReduce(50 * US), *END],
        ranks=4, iterations=9,
    )  # fmt: skip
    assert (s.answer.code, s.answer.ranks) == ("turns", [])


@pytest.mark.parametrize("slow", range(4))
def test_a_rank_that_is_late_because_it_waited_is_not_blamed(tmp_path: Path, slow: int) -> None:
    """Tensor parallel pairs (0, 1) and (2, 3) in data parallel pairs (0, 2) and (1, 3): the partner of the slow
    rank comes late to its own data parallel pair."""

    def tensor(rank: int) -> list[int]:
        return [rank // 2 * 2, rank // 2 * 2 + 1]

    layers: list[Step] = [
        p
        for _ in range(15)
        for p in (Kernel(only(slow, 300 * US, 200 * US)), AllReduce(20 * US, group="1", members=tensor), Wait())
    ]
    data = AllReduce(100 * US, group="2", members=lambda r: [r % 2, r % 2 + 2])
    s = solve(tmp_path, [*layers, data, *END], ranks=4)
    assert (s.answer.code, s.answer.ranks) == ("late_gpu", [slow])


def test_half_of_the_ranks_may_be_late(tmp_path: Path) -> None:
    s = solve(tmp_path, [*kernels(ns=lambda r, _: 300 * US if r >= 4 else 200 * US), *HIDDEN, *END], ranks=8)
    assert s.answer.ranks == [4, 5, 6, 7]
    assert s.answer.cause.startswith("The GPUs of ranks 4, 5, 6 and 7 compute")


@pytest.mark.parametrize("ahead", [0, 300 * US, 5_000 * US])
def test_where_nothing_can_be_won_it_says_that_whatever_the_clocks_say(tmp_path: Path, ahead: int) -> None:
    s = solve(tmp_path, [*kernels(), *HIDDEN, *END], clock_ns=lambda r: ahead * r)
    assert (s.answer.code, s.answer.ranks) == ("nothing", [])
    assert "nothing worth a change" in s.answer.gain


@pytest.mark.parametrize("ahead", [-4_000 * US, 300 * US, 5_000 * US])
def test_the_late_rank_is_the_same_whatever_the_clocks_say(tmp_path: Path, ahead: int) -> None:
    s = solve(
        tmp_path, [*kernels(ns=only(1, 300 * US, 200 * US)), *HIDDEN, *END], clock_ns=lambda r: ahead * (r == 0)
    )
    assert (s.answer.code, s.answer.ranks) == ("late_gpu", [1])


def test_a_pipelines_bubble_is_nobodys_fault(tmp_path: Path) -> None:
    """Two stages, two micro-batches, one after the other: each stage waits while the other computes."""
    forward = [Kernel(only(0, 800 * US, 1)), Send(20 * US, [(0, 1)]), Wait()]
    backward = [Kernel(only(1, 1600 * US, 1)), Send(20 * US, [(1, 0)]), Wait(), Kernel(only(0, 800 * US, 1))]
    s = solve(tmp_path, [*forward, *backward, *forward, *backward, Synchronise()])
    assert (s.answer.code, s.answer.ranks) == ("bubble", [])
    assert "bubble" in s.answer.communication
    assert "micro-batches" in s.answer.next and "transport" not in s.answer.next


@pytest.mark.parametrize("seed", range(12))
def test_no_rank_is_blamed_that_is_not_at_fault(tmp_path: Path, seed: int) -> None:
    """Random jobs with tensor and data parallel groups, noise in every kernel, clocks that differ, and one slow rank
    or none."""
    draw = random.Random(seed)
    tensor, data = draw.choice([(1, 2), (2, 1), (2, 2), (2, 3), (1, 5)])
    ranks = tensor * data
    slow = draw.choice([None, *range(ranks)])
    kind = draw.choice(["gpu", "host", "loader", "work"])
    ahead = [draw.randrange(-400, 400) * US for _ in range(ranks)]
    noise = {(r, i): draw.randrange(0, 6 * US) for r in range(ranks) for i in range(5)}
    layers = draw.randrange(6, 14)

    def length(rank: int, iteration: int) -> int:
        return 150 * US + noise[rank, iteration] + (90 * US if rank == slow and kind == "gpu" else 0)

    program: list[Step] = [Load(only(-1 if slow is None or kind != "loader" else slow, layers * 120 * US))]
    extra = -1 if slow is None or kind != "work" else slow
    for _ in range(layers):
        program += [Kernel(length), Kernel(90 * US, name="extra", count=only(extra, 1))]
        if tensor > 1:
            group = AllReduce(
                15 * US, group="1", members=lambda r: [r // tensor * tensor, r // tensor * tensor + 1]
            )
            program += [group, Wait()]
    program.append(AllReduce(60 * US, group="2", members=lambda r: range(r % tensor, ranks, tensor)))
    launch = only(-1 if slow is None or kind != "host" else slow, 260 * US, 6 * US)
    s = solve(tmp_path, [*program, *END], ranks=ranks, iterations=5, launch_ns=launch, clock_ns=lambda r: ahead[r])
    assert s.answer.ranks == ([] if slow is None else [slow]), (slow, kind, s.answer.cause)


def test_small_differences_of_many_ranks_do_not_hide_the_one_that_is_late(tmp_path: Path) -> None:
    s = solve(
        tmp_path,
        [Kernel(lambda r, i: (30 + (7 * r + 3 * i) % 11) * US, count=40), AllReduce(400 * US), *END],
        ranks=24, launch_ns=only(17, 80 * US, 6 * US),
    )  # fmt: skip
    assert (s.answer.code, s.answer.ranks) == ("late_host", [17])


def test_the_start_of_the_profiler_is_no_cause(tmp_path: Path) -> None:
    """Rank 1's first step begins late; after that nobody waits."""
    program: list[Step] = [Busy(lambda r, i: 9000 * US if r == 1 and i == 0 else 0), *kernels(), *HIDDEN, *END]
    s = solve(tmp_path, program, iterations=5)
    assert all(c.code not in ("turns", "late_host") or c.gain_share < 0.02 for c in s.losses)
    assert s.answer.ranks == []


def test_without_any_communication_in_a_world_nothing_is_called_fine(tmp_path: Path) -> None:
    made = make_job(2, 2, seed=34, arguments=False)[0]
    (tmp_path / "rank0.json").write_bytes(made.text.replace(b"ncclDevKernel_AllReduce", b"my_own_kernel"))
    s = read(tmp_path)
    assert s.answer.communication.startswith("none recognised although")
    assert s.answer.code != "nothing"


def test_the_five_lines_have_their_labels(tmp_path: Path) -> None:
    s = solve(tmp_path, [*kernels(), *HIDDEN, *END])
    assert [label for label, _ in s.answer.lines] == ["Iteration", "Communication", "Cause", "To be won", "Next"]
    assert all(text and not text.endswith(".") for _, text in s.answer.lines)
    assert "median of 3" in s.answer.iteration  # of 4: the last window lacks the host's time behind it


def test_each_line_of_the_answer_fits_80_columns(tmp_path: Path) -> None:
    late = only(1, 60 * US, 6 * US)
    jobs: list[tuple[list[Step], dict[str, Any]]] = [
        ([*kernels(), *HIDDEN, *END], {}),
        ([*kernels(), *HIDDEN, *END], {"launch_ns": late}),
        ([Kernel(100 * US, count=20), AllReduce(3000 * US), *END], {}),
    ]
    assert len(jobs) == 3
    for number, (program, options) in enumerate(jobs):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = solve(folder, program, **options).answer
        assert len(answer.brief_lines) == 5
        for label, text in answer.brief_lines:
            assert text and len(text) <= 64, (label, text)


@pytest.mark.parametrize(
    ("hints", "line"),
    [
        (
            "take more micro-batches, or an interleaved schedule",
            "take more micro-batches, or an interleaved schedule",
        ),
        (f"first (one; {'x' * 20}); {'second ' * 9}", f"first (one; {'x' * 20})"),
        (f"do this ({'x' * 60}) and that", "do this and that"),
        (f"do this: {'x ' * 60}", "do this"),
    ],
)
def test_hints_are_cut_between_clauses(hints: str, line: str) -> None:
    assert clipped(hints) == line
