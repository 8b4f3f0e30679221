"""Testbeds: where a paper's rows were measured."""

from __future__ import annotations

from typing import Any

import pytest

from wirecost.errors import SpecError
from wirecost.spec import Testbed, load_spec, validate
from wirecost.spec.presets import names

MINE: dict[str, Any] = {
    "name": "mine",
    "clusters": {"rdma": "selene"},
    "stack": "generic",
    "precision": "bf16",
    "source": "here",
}


@pytest.mark.parametrize("name", names("testbed"))
def test_presets_name_clusters_and_stacks_that_are_there(name: str) -> None:
    testbed = load_spec("testbed", name)
    assert testbed.name == name
    assert testbed.clusters


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stack": "nothing"}, "unknown stack"),
        ({"clusters": {"rdma": "selen"}}, "did you mean 'selene'"),
        ({"clusters": {}}, "clusters"),
        ({"precision": "fp5"}, "precision"),
        ({"source": None}, "source"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        validate(Testbed, {**MINE, **change}, "mine")


def test_a_protocol_is_found_whatever_its_case() -> None:
    testbed = validate(Testbed, MINE, "mine")
    assert testbed.cluster(" RDMA ") == "selene"
    with pytest.raises(ValueError, match="unknown protocol 'TCP'"):
        testbed.cluster("TCP")
