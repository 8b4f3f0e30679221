"""Numbers in specifications are such that a quantity can have."""

from __future__ import annotations

from typing import Any

import pytest

from wirecost.breakdown import Breakdown
from wirecost.costmodel.setup import setup
from wirecost.errors import SpecError, shorten
from wirecost.prediction.predict import predict
from wirecost.spec import Cluster, Stack, Workload, load_spec, validate
from wirecost.spec.presets import named
from wirecost.units import parse_rate_bps, parse_size_bytes

HUGE: list[Any] = [1e21, 10**400, 10**5000, -(10**400), 1e-21, 5e-324]


@pytest.mark.parametrize("value", HUGE, ids=range(len(HUGE)))
@pytest.mark.parametrize(
    ("model", "kind", "name", "key"),
    [
        (Workload, "workload", "gpt-tiny", "hidden"),
        (Cluster, "cluster", "dgx-h100", "gpus_per_node"),
        (Stack, "stack", "generic", "hidden_bytes"),
        (Stack, "stack", "generic", "calibrated_range"),
    ],
)
def test_numbers_that_nothing_has_are_refused_in_one_line(
    model: Any, kind: str, name: str, key: str, value: Any
) -> None:
    given = {"gpus": [1, value]} if key == "calibrated_range" else value
    with pytest.raises(SpecError, match=key) as refusal:
        validate(model, {"name": name, **named(kind, name), key: given}, "x.yaml")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("text", ["1e30 Gb/s", "1e-30 b/s", "0.5 b/s", 10**400, "9" * 5000 + " Gb/s"])
def test_rates_that_no_link_has(text: Any) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rate_bps(text)


def test_sizes_beyond_64_bits() -> None:
    assert parse_size_bytes("7 TiB") == 7 << 40
    with pytest.raises(ValueError, match="can't be a size"):
        parse_size_bytes("1e9 TiB")


def test_a_latency_of_centuries() -> None:
    link = {"name": "x", **named("link", "nvlink4"), "latency": "1e10 s"}
    cluster = {"name": "c", **named("cluster", "dgx-h100"), "intra_node": link}
    with pytest.raises(SpecError, match="latency: 1e"):
        validate(Cluster, cluster, "x.yaml")


def test_numbers_that_together_give_no_iteration() -> None:
    cluster = load_spec("cluster", "dgx-h100").model_copy(update={"dollars_per_gpu_hour": None})
    workload = load_spec("workload", "gpt-tiny", layers=10**9, sequence_length=10**9, hidden=10**9, heads=10**6)
    made = setup(workload, load_spec("plan", "zero3"), cluster, gpus=8)
    with pytest.raises(SpecError, match="give no"):
        predict(made)


def test_results_are_integers_of_64_bits() -> None:
    part = {"compute_only_ns": 0, "overlapped_ns": 0, "exposed_comm_ns": 0, "exposed_memory_ns": 0}
    parts = {"window_ns": 10**400, "idle_ns": 10**400, **part}
    with pytest.raises(ValueError, match="less than or equal to 9223372036854775807"):
        Breakdown.model_validate(
            {
                "source": "measured", "title": "t", "world_size": 1,
                "iterations": [{"rank": 0, "name": "0", "parts": parts}],
            }
        )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(10**5000, "very many digits"), ("a" * 500, "aaa..."), (3, "3")],
    ids=["digits", "text", "3"],
)
def test_a_value_is_shown_short(value: Any, text: str) -> None:
    assert text in shorten(value)
    assert len(shorten(value)) < 90
