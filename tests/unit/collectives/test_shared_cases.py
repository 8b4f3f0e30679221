"""The results that were read wrongly before, with their right values (they lie beside the checkout)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import SHARED
from wirecost.collectives.efficiency import fit_rows
from wirecost.collectives.readers import Reading, ResultFileError, Table, read_results
from wirecost.collectives.request import Mode

pytestmark = pytest.mark.needs_shared
CASES = SHARED / "cases" / "bench"
INPUTS = sorted(path for path in CASES.glob("*/input.*"))
OSU_RANKS = 8


def read(name: str, ranks: int | None = None) -> Reading:
    (folder,) = [p for p in CASES.iterdir() if p.name == name or p.name.startswith(f"{name}-")]
    (path,) = folder.glob("input.*")
    return read_results(path, ranks=ranks)


def fitted(table: Table) -> tuple[float, float]:
    """Bus bandwidth in GB/s and latency in us."""
    (fit,) = fit_rows(table.rows, groups=table.groups)
    assert fit.fit is not None and fit.bus_bandwidth_Bps is not None
    return fit.bus_bandwidth_Bps * 1e-9, fit.fit.latency_ns * 1e-3


def ranks_for(path: Path) -> int | None:
    return OSU_RANKS if path.parent.name.startswith("B15") and "osu-bw" not in path.parent.name else None


REFUSED = {
    "B12-ran-alone": (None, "each process ran alone with 1 rank"),
    "B12b-ran-alone-ranks2": (2, "each process ran alone with 1 rank"),
    "B16-ranks-contradict": (16, "--ranks 16 contradicts the 8 ranks"),
}
EIGHT_RANKS_175 = (
    "B00", "B01", "B03b", "B04", "B08-", "B09", "B15b", "B15c", "B15e", "B15g", "B20", "B21", "B22", "B24", "B27",
)  # fmt: skip


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: p.parent.name)
def test_case(path: Path) -> None:
    name = path.parent.name
    if name in REFUSED:
        ranks, words = REFUSED[name]
        with pytest.raises(ResultFileError, match=words):
            read_results(path, ranks=ranks)
        return
    reading = read_results(path, ranks=ranks_for(path))
    assert reading.tables
    if name.startswith(EIGHT_RANKS_175):
        (table,) = reading.tables
        busbw, _ = fitted(table)
        assert (table.collective, table.ranks, table.groups) == ("all_reduce", 8, 1)
        assert busbw == pytest.approx(175, rel=2e-4)
    else:
        assert name[:4].rstrip("-") in {"B02", "B05", "B06", "B07c", "B11", "B13", "B13c", "B13d", "B15d", "B15f"}


def test_there_are_cases() -> None:
    assert len(INPUTS) >= 40 and REFUSED.keys() <= {p.parent.name for p in INPUTS}


def test_cpu_time_is_not_taken_for_time() -> None:
    reading = read("B01")
    assert fitted(reading.tables[0]) == (pytest.approx(175, rel=1e-3), pytest.approx(20, rel=1e-2))
    assert any("CPU" in d.message for d in reading.diagnostics)


@pytest.mark.parametrize(("name", "groups", "busbw"), [("B02", 8, 50), ("B07c", 4, 100)])
def test_groups_that_ran_at_once(name: str, groups: int, busbw: float) -> None:
    (table,) = read(name).tables
    assert (table.ranks, table.groups, table.hosts) == (2, groups, 2)
    assert fitted(table)[0] == pytest.approx(busbw, rel=1e-3)
    row = table.rows[-1]
    assert row.busbw_Bps == row.algbw_Bps


def test_wrong_results_are_said() -> None:
    corrupt = " ".join(read("B03b").corrupt)
    assert "FAILED" in corrupt and "17 elements" in corrupt


def test_rows_in_place_only() -> None:
    assert {row.mode for row in read("B04").rows} == {Mode.IN_PLACE}


def test_types_are_tables_of_their_own() -> None:
    tables = read("B05").tables
    assert [t.dtype for t in tables] == ["int8", "half", "float", "bfloat16", "double", "f8e4m3"]
    assert [round(fitted(t)[0]) for t in tables] == [175, 175, 175, 175, 105, 175]


def test_milliseconds_of_the_first_versions() -> None:
    reading = read("B06")
    (table,) = reading.tables
    assert table.ranks == 2 and fitted(table) == (pytest.approx(100, rel=1e-3), pytest.approx(20, rel=1e-2))
    assert any("ms" in d.message for d in reading.diagnostics)


def test_torn_rows_are_counted() -> None:
    reading = read("B09")
    assert (len(reading.rows), reading.ignored) == (18, 2)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("B11-all_gather", "all_gather"),
        ("B11-alltoall", "all_to_all"),
        ("B11-broadcast", "broadcast"),
        ("B11-gather", "gather"),
        ("B11-reduce_scatter", "reduce_scatter"),
        ("B11-scatter", "scatter"),
    ],
)
def test_collective_of_a_run(name: str, collective: str) -> None:
    (table,) = read(name).tables
    assert (table.collective, table.ranks) == (collective, 8)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("B13-two-programs", [("all_gather", 8, 1, 87.5), ("all_reduce", 16, 2, 75)]),
        ("B13c", [("all_reduce", 16, 2, 75), ("all_reduce", 8, 1, 175)]),
        ("B13d", [("all_reduce", 16, 2, 75), ("all_gather", 8, 1, 87.5)]),
    ],
)
def test_several_runs(name: str, tables: list[tuple[str, int, int, float]]) -> None:
    assert [(t.collective, t.ranks, t.hosts, round(fitted(t)[0], 1)) for t in read(name).tables] == tables


def test_osu_sizes_are_totals() -> None:
    (table,) = read("B15d", OSU_RANKS).tables
    assert table.collective == "all_gather" and {row.wrong for row in table.rows} == {0}
    assert table.rows[-1].size_bytes == OSU_RANKS * (64 << 20)
    (table,) = read("B15f").tables
    assert (table.collective, table.ranks) == ("send_recv", 2)
    assert fitted(table)[0] == pytest.approx(100, rel=1e-3)
