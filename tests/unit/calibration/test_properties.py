"""The one table of properties that may be fitted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.calibration.properties import (
    OF_PRESETS,
    PROPERTIES,
    TABLE,
    TIMES,
    Parts,
    Property,
    by_owner,
    fitted_to,
    free_preset,
    split_name,
    start_of,
)
from wirecost.errors import SpecError
from wirecost.spec import GPU, Link, SharedCores, gpu, load_spec, stack_named, validate
from wirecost.spec.presets import names
from wirecost.spec.stack import PLACES


def test_every_property_is_a_key_with_a_start_within_its_bounds() -> None:
    assert len({(p.kind, p.key) for p in TABLE}) == len(TABLE) > 30
    keys = {"gpu": set(GPU.model_fields), "link": set(Link.model_fields), "stack": set(PLACES)}
    keys["shared_cores"] = set(SharedCores.model_fields)
    for p in TABLE:
        assert p.key in keys[p.kind]
        assert 0 < p.low <= p.start <= p.high
        assert p.uncertainty > 0
        assert p.unit
        assert p.source


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: f"{entry.kind}-{entry.key}")
def test_bounds_of_a_property_are_values_that_its_specification_takes(entry: Property) -> None:
    name = {"gpu": "A100-SXM-80GB", "link": "nvlink3", "stack": "generic"}.get(entry.kind)
    spec = load_spec(entry.kind, name) if name else SharedCores(count=2, threads=1, source="here")
    for value in (entry.low, entry.high):
        given: Any = f"{value} s" if entry.key in TIMES else value
        if entry.key == "peak_flops":
            given = dict.fromkeys(gpu("A100-SXM-80GB").peak_flops, value)
        changed = validate(type(spec), spec.model_dump() | {entry.key: given}, "mine")
        assert start_of(changed, entry.key) == pytest.approx(value)


def test_every_preset_can_be_fitted_from_its_value() -> None:
    tried = 0
    for kind, key in OF_PRESETS:
        entry = PROPERTIES[kind, key]
        for name in names(kind):
            free = free_preset(f"{kind} {name} {key}")
            assert free.start == start_of(load_spec(kind, name), key) >= 0
            assert entry.low <= free.begin <= entry.high
            assert free.begin == pytest.approx(free.start) or not entry.low <= free.start <= entry.high
            tried += 1
    assert tried > 200


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu V100 matrix_efficiency x", "is written"),
        ("gpu V10 matrix_efficiency", "unknown gpu"),
        ("shared_cores machine serial", "unknown kind"),
        ("gpu A40 peak_flops", "unknown gpu property"),
    ],
)
def test_other_names_are_refused(name: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        split_name(name)


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), st.text(max_size=5))
def test_names_may_hold_spaces(first: str, second: str) -> None:
    owner = f"{first} {second}".strip()
    assert by_owner({f"link {owner} efficiency": 0.5}) == {("link", owner): {"efficiency": 0.5}}


def test_values_change_the_parts_that_own_them_and_no_others() -> None:
    nvlink = load_spec("link", "nvlink3")
    parts = Parts(gpu("A100-SXM-80GB"), stack_named("generic"), nvlink, load_spec("link", "infiniband-hdr"))
    values = {
        "gpu A100-SXM-80GB matrix_efficiency": 0.5,
        "stack generic hidden_bytes": 7.0,
        "link infiniband-hdr latency": 1e-5,
        "link nvlink4 efficiency": 0.1,
        "stack fsdp-flash hidden_bytes": 1.0,
    }
    changed = parts.with_values(values)
    assert changed.gpu.matrix_efficiency == 0.5
    assert changed.stack.layer.hidden_bytes == 7.0
    assert float(changed.inter.latency or 0) == 1e-5
    assert changed.intra is nvlink
    assert parts.with_values({}) == parts


def test_what_is_measured_follows_from_what_was_fitted() -> None:
    assert fitted_to("gpu", ["matrix_efficiency"], "x")["provenance"] == "measured"
    assert fitted_to("gpu", ["memory_efficiency"], "x") == {}
    assert fitted_to("link", ["efficiency"], "x")["provenance"] == "measured"
    assert fitted_to("link", ["latency"], "x") == {}
    assert fitted_to("stack", ["hidden_bytes"], "x") == {"provenance": "measured", "calibration": "x"}
