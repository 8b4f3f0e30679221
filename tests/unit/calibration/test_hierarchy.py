"""The hierarchical fit of many sources: what a source determines, and what unknown stacks get."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.model import ROW
from wirecost.calibration.hierarchy import Sources, fit_sources, predict, refined, terms_of, values_of
from wirecost.calibration.inputs.evaluate import predict_rows
from wirecost.calibration.inputs.rows import TableRow, iteration_row
from wirecost.calibration.levels import SHARED, Level, has_property, levels_of, value_at
from wirecost.calibration.properties import PROPERTIES

ONE_GPU = {
    "tp": "1",
    "pp": "1",
    "dp": "1",
    "n_gpus": "1",
    "gas": "1",
    "hidden": "4096",
    "heads": "32",
    "ffn": "16384",
}


def rows(stack: str, slower: float, **columns: str) -> list[TableRow]:
    """Rows that take `slower` times what the presets say."""
    table = []
    for index, (micro, layers) in enumerate([("1", "8"), ("2", "8"), ("4", "8"), ("2", "16"), ("4", "16")]):
        given = {**ROW, **ONE_GPU, "mbs": micro, "n_layers": layers, "framework": stack, "gbs": "", **columns}
        table.append(iteration_row(given, index))
    predicted, _ = predict_rows(table)
    return [replace(row, measured=float(s * slower)) for row, s in zip(table, predicted, strict=True)]


def test_a_fit_reproduces_the_sources_that_it_saw() -> None:
    seen = rows("internevo", 1.1) + rows("torchtitan", 0.95)
    sources = Sources(seen, ["first"] * 5 + ["second"] * 5)
    posterior = fit_sources(sources)
    errors, spread = predict(sources, posterior, np.ones(10, dtype=bool))
    assert np.abs(errors).max() < 0.06
    assert (spread > 0).all()


def test_a_stack_without_rows_gets_the_mean_and_a_wider_spread() -> None:
    seen = rows("internevo", 1.0) + rows("torchtitan", 1.0) + rows("paxml", 1.0)
    sources = Sources(seen, ["a"] * 5 + ["b"] * 5 + ["c"] * 5)
    held_out = sources.labels == "c"
    posterior = fit_sources(sources, ~held_out)
    unknown = values_of(posterior.levels, posterior.x, [("stack", "xla", "fused")])
    never = values_of(posterior.levels, posterior.x, [("stack", "nobody", "fused")])
    key = "hidden_bytes"
    assert unknown[f"stack xla {key}"] == pytest.approx(never[f"stack nobody {key}"], rel=0.02)
    _, wide = predict(sources, posterior, held_out)
    _, narrow = predict(sources, posterior, ~held_out)
    assert wide.mean() > narrow.mean()


def test_many_rows_of_one_source_weigh_no_more_than_its_full_weight() -> None:
    few, many = rows("internevo", 1.0), rows("torchtitan", 1.0) * 200
    sources = Sources(few + many, ["few"] * 5 + ["many"] * 1000)
    weights = sources.weights(np.ones(1005, dtype=bool)) ** 2
    assert weights[:5].sum() * 60 == pytest.approx(weights[5:].sum())


def test_every_level_is_of_a_property_that_may_be_fitted_and_starts_inside_its_bounds() -> None:
    assert SHARED
    for shared in SHARED:
        entry = PROPERTIES[shared.kind, shared.key]
        assert value_at(shared, 0.0) == pytest.approx(shared.mean)
        assert entry.low / 10 <= shared.mean <= entry.high
        for deviation in (-50.0, 50.0):
            assert entry.low / 10 <= value_at(shared, deviation) <= max(entry.high, 1.0)


def test_a_property_is_the_sum_of_its_mean_and_its_owners_level() -> None:
    parts = [row.parts for row in rows("internevo", 1.0)]
    levels = levels_of(parts)
    terms = terms_of(levels, [("stack", "internevo", "fused")])
    assert all(len(places) == 2 for _, _, places in terms.sums)
    assert {level.name for level in levels if level.shared.kind == "gpu"} == {None, "A100-SXM-80GB"}
    assert any(isinstance(level, Level) and level.name is None for level in levels)


@pytest.mark.parametrize(
    ("name", "key", "has"),
    [
        ("megatron-core", "tensor_overlap", True),
        ("nanotron", "tensor_overlap", False),
        ("megatron-lm-2021", "data_parallel_overlap", False),
        ("internevo", "data_parallel_overlap", True),
        ("nanotron", "hidden_bytes", True),
    ],
)
def test_overlaps_that_a_stack_does_not_have_are_not_fitted(name: str, key: str, has: bool) -> None:
    assert has_property(name, key) is has


def test_a_refined_stack_moves_alone_and_is_closer_to_its_rows() -> None:
    sources = Sources(rows("internevo", 1.25) + rows("torchtitan", 0.9), ["a"] * 5 + ["b"] * 5)
    posterior = fit_sources(sources)
    own = sources.labels == "a"
    closer = refined(sources, posterior, "internevo", own)
    before, after = (np.abs(predict(sources, each, own)[0]).mean() for each in (posterior, closer))
    assert after <= before
    moved = {posterior.levels[i].name for i in np.flatnonzero(closer.x != posterior.x)}
    assert moved <= {"internevo"}
