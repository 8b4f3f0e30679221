"""Stacks: flat YAML keys, sorted into records."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import DeprecatedWarning, SpecError
from wirecost.spec import Cluster, Stack, parse_yaml, stack_named, to_yaml, validate
from wirecost.spec.presets import named, names
from wirecost.spec.stack import PLACES, RECORDS


@pytest.mark.parametrize("name", names("stack"))
def test_a_stack_is_written_with_the_keys_that_it_is_read_by(name: str) -> None:
    stack = stack_named(name)
    text = to_yaml(stack)
    assert validate(Stack, parse_yaml(text, name), name) == stack
    written = parse_yaml(text, name)
    given_ = named("stack", name)
    assert set(given_) <= set(written)
    for key in set(given_) - {"match", "calibrated_range"}:
        value = given_[key]
        assert written[key] == (type(written[key])(value) if isinstance(value, str) else value), key
    assert not set(written) & (set(RECORDS) - set(PLACES))


def test_every_key_has_a_place_of_its_own() -> None:
    assert len(set(PLACES.values())) == len(PLACES) > 50
    stack = stack_named("generic")
    for key, (record, field) in PLACES.items():
        assert stack.value(key) == getattr(getattr(stack, record), field)


@given(st.sampled_from(sorted(k for k in PLACES if k.endswith("_s") and k != "run_ahead_s")), st.floats(0, 10))
def test_one_value_is_changed_and_nothing_else(key: str, value: float) -> None:
    stack = stack_named("generic")
    changed = stack.with_values({key: value})
    assert changed.value(key) == value
    assert changed.with_values({key: stack.value(key)}) == stack


def test_unknown_keys_are_refused() -> None:
    data = named("stack", "generic")
    with pytest.raises(SpecError, match=r"unknown key 'host_forwrd_s'.*did you mean 'host_forward_s'"):
        validate(Stack, {**data, "host_forwrd_s": 1}, "mine")
    with pytest.raises(SpecError, match=r"^mine: host_forward_s: input should be greater than or equal to 0"):
        validate(Stack, {**data, "host_forward_s": -1}, "mine")
    missing = {key: value for key, value in data.items() if key != "hidden_bytes"}
    with pytest.raises(SpecError, match=r"^mine: hidden_bytes: is missing"):
        validate(Stack, missing, "mine")
    with pytest.raises(KeyError):
        stack_named("generic").with_values({"host_forwrd_s": 1})


def test_former_names_of_keys_that_calibrations_wrote_are_read_without_a_word() -> None:
    data = named("stack", "generic")
    correction = {"key": {"hidden": 1}, "micro_batch": 1, "runs": 1, "compute": 1.5}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stack = validate(Stack, {**data, "seen": [correction], "seen_spread": 0.1}, "mine")
    (read,) = stack.accuracy.workload_corrections
    assert read.compute == 1.5
    assert stack.accuracy.workload_correction_spread == 0.1
    with pytest.raises(SpecError, match="unknown key 'seen'"):
        validate(Stack, {**data, "seen": [], "workload_corrections": []}, "mine")


def test_a_cluster_with_cores_is_read_with_a_line_that_says_so() -> None:
    cores = {"count": 2, "threads": 1, "source": "here"}
    with pytest.warns(DeprecatedWarning, match="the key 'cores' is deprecated: write 'shared_cores'"):
        cluster = validate(Cluster, {**named("cluster", "selene"), "cores": cores}, "mine")
    assert cluster.shared_cores is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert validate(Cluster, {**named("cluster", "selene"), "shared_cores": cores}, "mine") == cluster


@pytest.mark.parametrize("value", [1e21, 10**400, -1e21, 1e-21])
def test_numbers_that_no_stack_has_are_refused(value: float) -> None:
    with pytest.raises(SpecError, match=r"^mine: host_forward_s: .* can't be"):
        validate(Stack, {**named("stack", "generic"), "host_forward_s": value}, "mine")
