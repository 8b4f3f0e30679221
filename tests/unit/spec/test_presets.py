from __future__ import annotations

import pytest

from wirecost.spec import Network, Plan, Study, Workload, parse_yaml, validate
from wirecost.spec.presets import named, names


@pytest.mark.parametrize(("kind", "model"), [("workload", Workload), ("network", Network), ("plan", Plan)])
def test_every_preset_is_valid_and_named_as_its_file(kind: str, model: type[Workload | Network | Plan]) -> None:
    assert names(kind)
    for name in names(kind):
        assert validate(model, named(kind, name), name).name == name


def test_a_network_inside_a_host_has_all_ranks_there() -> None:
    text = """\
name: x
workloads: [gpt-tiny]
networks: [loopback, emulated-1g]
plans: [all-reduce]
hosts: [4]
ranks_per_host: 2
scaling: [{kind: strong, global_batch: 16}]
"""
    inside, between = validate(Study, parse_yaml(text, "s"), "s").model_experiments()
    assert (inside.hosts, inside.ranks_per_host) == (1, 8)
    assert (between.hosts, between.ranks_per_host) == (4, 2)
    assert inside.global_batch == between.global_batch == 16
