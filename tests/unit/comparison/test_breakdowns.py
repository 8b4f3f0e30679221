"""Before and after, from breakdowns made by hand and from traces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.tracefiles import write_job
from wirecost.breakdown import Breakdown, Collective, Iteration, Parts, Source
from wirecost.cli import application
from wirecost.comparison.breakdowns import compare
from wirecost.errors import WirecostError


def made(
    times_ms: list[int], *, exposed_ms: int = 1, source: Source = Source.IMPORTED, world: int = 1
) -> Breakdown:
    def parts(ms: int) -> Parts:
        return Parts(
            window_ns=ms * 1_000_000, compute_only_ns=(ms - exposed_ms) * 1_000_000, overlapped_ns=0,
            exposed_comm_ns=exposed_ms * 1_000_000, exposed_memory_ns=0, idle_ns=0,
        )  # fmt: skip

    return Breakdown(
        source=source,
        title="made",
        world_size=world,
        iterations=tuple(Iteration(rank=0, name=f"i{k}", parts=parts(ms)) for k, ms in enumerate(times_ms)),
        collectives=(Collective(rank=0, op="all_reduce", group="g", count=len(times_ms) or 1, duration_ns=7),),
    )


def test_a_clear_speedup_is_said_with_its_interval() -> None:
    c = compare(made([20] * 9 + [21]), made([10] * 9 + [11]))
    assert c.speedup is not None
    assert c.speedup.value == 2
    assert c.summary[0].startswith("The second is 2.00x faster")
    assert "compute only: it shrank by 10.000 ms" in c.summary[1]


def test_the_interval_is_of_the_number_beside_it() -> None:
    (said, *_) = compare(made([10] * 9 + [11]), made([20] * 5 + [21] * 5)).summary
    found = re.fullmatch(r"The second is (.*)x slower \(95 % interval (.*)x to (.*)x, n = 10 and 10\)\.", said)
    assert found is not None, said
    value, low, high = map(float, found.groups())
    assert 1 < low <= value <= high


def test_windows_that_are_parts_of_iterations_are_refused() -> None:
    partial = made([1] * 5)
    spread = [i.model_copy(update={"start_ns": k * 100_000_000}) for k, i in enumerate(partial.iterations)]
    partial = partial.model_copy(update={"iterations": tuple(spread)})
    with pytest.raises(WirecostError, match=r"the second: the windows of rank 0 cover only 1\.2%"):
        compare(made([1] * 5), partial)
    measured = partial.model_copy(update={"source": Source.MEASURED})
    assert compare(measured, measured).speedup is not None


def test_noise_is_not_called_a_difference() -> None:
    c = compare(made([10, 20, 30, 40]), made([11, 19, 31, 41]))
    assert c.summary[0].startswith("No difference")


def test_few_samples_and_other_sources_are_pointed_out() -> None:
    c = compare(made([20]), made([30], source=Source.PREDICTED, world=2))
    assert "imported" in c.summary[0] and "predicted" in c.summary[0]
    assert "worlds differ" in c.summary[1]
    assert c.summary[2] == "The second is 1.50x slower, on only 1 iteration of one side."


def test_other_ranks_and_numbers_of_iterations_are_pointed_out() -> None:
    both = made([20] * 5, world=2)
    wide = both.model_copy(
        update={"iterations": (*both.iterations, *(i.model_copy(update={"rank": 1}) for i in both.iterations))}
    )
    summary = compare(wide, made([20] * 9, world=2)).summary
    assert summary[0].startswith("The first holds 2 ranks, the second 1")
    assert summary[1] == (
        "Collectives are sums over all that was recorded: 5 complete iterations in the first and 9 in the second."
    )
    assert compare(wide, wide).summary[0].startswith("No difference")


def test_unknown_bytes_stay_unknown() -> None:
    (row,) = compare(made([1]), made([1])).collectives
    assert (row.before_bytes, row.after_bytes, row.before_count) == (None, None, 1)


def test_empty_sides() -> None:
    assert "nothing to compare" in compare(made([]), made([1])).summary[-1]


def test_the_command_takes_breakdowns_and_traces(tmp_path: Path) -> None:
    write_job(tmp_path / "a", 2, 5)
    write_job(tmp_path / "b", 2, 5, late=1)
    run = CliRunner()
    breakdown = tmp_path / "a.json"
    assert run.invoke(application(), ["trace", str(tmp_path / "a"), "--breakdown", str(breakdown)]).exit_code == 0
    done = run.invoke(application(), ["compare", str(breakdown), str(tmp_path / "b"), "--format", "json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["before_source"] == "imported"
    assert document["parts"][0]["part"] == "compute_only_ns"
    shown = run.invoke(application(), ["compare", str(breakdown), str(breakdown)])
    assert "No difference" in shown.output


def test_a_broken_breakdown_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema_version": 1, "source": "guessed"}')
    result = CliRunner().invoke(application(), ["compare", str(path), str(path)])
    assert isinstance(result.exception, WirecostError)
    with pytest.raises(WirecostError, match="invalid breakdown"):
        raise result.exception
