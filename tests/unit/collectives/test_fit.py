"""The fit recovers what data were made from, and refuses what it can't tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirecost.collectives.efficiency import efficiency, fit_rows, latency_over_ranks, write_to_cluster
from wirecost.collectives.fit import FitRefusedError, fit
from wirecost.collectives.readers.base import row
from wirecost.errors import SpecError
from wirecost.spec import Cluster, load

SIZES = [8 << k for k in range(24)]


@settings(max_examples=15, deadline=None)
@given(st.floats(1e3, 1e6), st.floats(0.005, 20), st.integers(0, 1000))
def test_recovers_latency_and_bandwidth(alpha_ns: float, ns_per_byte: float, seed: int) -> None:
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.005, len(SIZES)))
    times = (alpha_ns + ns_per_byte * np.array(SIZES)) * noise
    found = fit(SIZES, list(times))
    assert found.latency_ns == pytest.approx(alpha_ns, rel=0.05)
    assert found.slope_ns_per_byte == pytest.approx(ns_per_byte, rel=0.05)
    assert found.error < 0.02
    low, high = found.latency_interval_ns
    assert low <= found.latency_ns * 1.001
    assert high >= found.latency_ns * 0.999


@settings(max_examples=10, deadline=None)
@given(st.integers(8, 16), st.floats(3, 10))
def test_finds_a_protocol_switch(at: int, times_slower: float) -> None:
    """Above the switch a byte costs several times more: one breakpoint, at the switch."""
    switch = SIZES[at]
    first = 20_000 / switch  # before the switch, bytes already cost as much as the latency
    data = [20_000 + first * min(s, switch) + times_slower * first * max(0, s - switch) for s in SIZES]
    found = fit(SIZES, data)
    assert [b for b in found.curve.breaks if switch / 2 <= b <= switch * 2]
    assert max(abs(r) for r in found.residuals) < 0.03
    assert found.slope_ns_per_byte == pytest.approx(times_slower * first, rel=0.02)


def test_straight_data_get_no_breakpoint() -> None:
    assert fit(SIZES, [5000 + 0.1 * s for s in SIZES]).curve.breaks == ()


def test_small_messages_that_get_faster_are_a_flat_piece() -> None:
    """Gloo over an emulated network, in ns: what is above 128 KiB still comes out as it is."""
    times = [1.19e6, 1.29e6, 0.98e6, 1.02e6, 4.24e6, 16.94e6, 67.9e6]
    found = fit([2048 << 2 * n for n in range(7)], times)
    assert found.curve.breaks == (131072.0,)
    assert found.latency_ns == pytest.approx(1.09e6, rel=0.02)
    assert found.slope_ns_per_byte == pytest.approx(8.06, rel=0.02)


@pytest.mark.parametrize(
    ("sizes", "times", "reason"),
    [
        ([8, 16, 32, 64, 128], [1.0] * 5, "5 sizes"),
        ([8] * 10, [1.0] * 10, "1 sizes"),
        ([100, 110, 120, 130, 140, 150], [1.0] * 6, "16 times"),
        (SIZES, [-1.0] * len(SIZES), "not a measurement"),
        (SIZES, [float("nan")] * len(SIZES), "not a measurement"),
    ],
)
def test_thin_data_are_refused(sizes: list[int], times: list[float], reason: str) -> None:
    with pytest.raises(FitRefusedError, match=reason):
        fit(sizes, times)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(10, 1e9), min_size=6, max_size=12))
def test_any_times_give_a_curve_that_is_positive_and_grows(times: list[float]) -> None:
    sizes = SIZES[: len(times)]
    curve = fit(sizes, times).curve
    values = curve(np.geomspace(1, sizes[-1] * 4, 100))
    assert (values > 0).all()
    assert (np.diff(values) >= 0).all()


def test_latency_over_ranks_tells_ring_from_tree() -> None:
    ring = latency_over_ranks("all_reduce", {n: 1000.0 + 300 * (n - 1) for n in (2, 4, 8, 16)})
    assert (ring.shape, ring.latency_ns(32)) == ("ring", pytest.approx(1000 + 300 * 31))
    tree = latency_over_ranks("all_reduce", {n: 1000.0 + 300 * np.log2(n) for n in (2, 4, 8, 16)})
    assert (tree.shape, tree.latency_ns(32)) == ("tree", pytest.approx(1000 + 300 * 5))
    with pytest.raises(FitRefusedError):
        latency_over_ranks("all_reduce", {2: 1.0, 4: 2.0})


CLUSTER = """\
# Ours.
name: two-hosts
gpu: A100-SXM-40GB
gpus_per_node: 1
nodes: 2
intra_node: {name: pcie, rate: 100 Gb/s, source: datasheet}
inter_node: {name: ethernet, rate: 1 Gb/s, source: datasheet}
"""


def _rows(slope: float = 8.0) -> list:
    return [row("all_reduce", size_bytes=s, ranks=2, time_us=60 + slope * 1e-3 * s) for s in SIZES]


def test_efficiency_goes_into_a_clusters_file_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    for slope in (9.0, 8.0):  # the second replaces the first
        found = efficiency(fit_rows(_rows(slope)), source="test", hosts=2, network="emulated-1g", emulated=True)
        write_to_cluster(path, found)
    assert path.read_text().startswith(CLUSTER)
    assert path.read_text().count("network_efficiency:") == 1
    kept = load(Cluster, path).network_efficiency
    assert kept is not None
    (entry,) = kept.collectives
    assert kept.emulated is True
    assert entry.latency_ns == pytest.approx(60e3, rel=0.01)
    assert entry.bus_bandwidth_Bps == pytest.approx(1e9 / 8, rel=0.01)
    for size in SIZES:
        assert entry.time_ns(size) == pytest.approx(60e3 + 8 * size, rel=0.03)
    other = [row("broadcast", size_bytes=s, ranks=2, time_us=60 + 1e-3 * s) for s in SIZES]
    write_to_cluster(path, efficiency(fit_rows(other), source="test", hosts=2))
    both = load(Cluster, path).network_efficiency
    assert both is not None
    assert [c.collective for c in both.collectives] == ["all_reduce", "broadcast"]


def test_a_refused_fit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    fitted = fit_rows(_rows()[:3])
    assert fitted[0].fit is None
    with pytest.raises(SpecError, match="no fit succeeded"):
        write_to_cluster(path, efficiency(fitted, source="test"))
    assert path.read_text() == CLUSTER


@pytest.mark.needs_shared
def test_median_error_on_published_measurements_left_out(shared: Path) -> None:
    """The target of 5 % holds on every table of at least six sizes."""
    import csv

    tables: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    with (shared / "reference" / "measured" / "collective_microbench.csv").open() as file:
        for line in csv.DictReader(file):
            if line["size_bytes"] and line["time_us"]:
                key = (line["source"], line["collective"], line["n_gpus"], line["nodes"], line["gpu"])
                tables.setdefault(key, []).append((int(float(line["size_bytes"])), float(line["time_us"]) * 1e3))
    errors = []
    for points in tables.values():
        if len({s for s, _ in points}) >= 6:
            errors += fit([s for s, _ in points], [t for _, t in points]).left_out
    assert len(errors) > 200
    assert np.median(np.abs(errors)) <= 0.05


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(1e6, 1e10),
    bucket=st.integers(10_000, 200_000),
    latency=st.floats(1e4, 1e7),
    noise=st.lists(st.floats(0.9, 1.1), min_size=9, max_size=9),
)
def test_a_known_link_bounds_what_endless_messages_tend_to(
    rate: float, bucket: int, latency: float, noise: list[float]
) -> None:
    """What escapes a shaper's bucket looks like more bandwidth than there is."""
    sizes = [64 * 4**k for k in range(9)]
    times = [(latency + max(0, s - bucket) / rate * 1e9) * n for s, n in zip(sizes, noise, strict=True)]
    bounded = fit(sizes, times, least_slope=1e9 / rate)
    assert bounded.slope_ns_per_byte >= 1e9 / rate * (1 - 1e-9)
    assert bounded.slope_interval[0] >= 1e9 / rate * (1 - 1e-9)
    assert all(slope > 0 for _, _, slope in bounded.curve.pieces())
    assert bounded.latency_interval_ns[0] <= bounded.latency_ns <= bounded.latency_interval_ns[1]


def test_a_link_that_is_not_reached_changes_nothing() -> None:
    sizes = [64 * 4**k for k in range(9)]
    times = [1e5 + 0.5 * size for size in sizes]
    assert fit(sizes, times, least_slope=0.25) == fit(sizes, times)
