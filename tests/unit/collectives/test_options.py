"""The network that a benchmark's options name: a preset, a file, or one that a study describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.benches import request
from wirecost.collectives.options import study_network
from wirecost.errors import SpecError
from wirecost.units import parse_rate_bps

STUDY = """\
name: own
workloads: [{name: w, layers: 1, hidden: 8, heads: 2, vocab_size: 300, sequence_length: 8}]
networks: [%s]
plans: [ddp]
hosts: [2]
scaling: [{kind: strong, global_batch: 2}]
"""
OFFICE = "{name: office, emulate: {rate: 300 Mb/s, delay: 200 us}}"


def study(folder: Path, networks: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY % networks)
    return path


def test_a_network_described_in_a_study_is_benchmarked_by_its_name(tmp_path: Path) -> None:
    network = study_network(study(tmp_path, f"{OFFICE}, emulated-1g"), "office")
    assert network.emulate is not None
    assert network.emulate.rate == parse_rate_bps("300 Mb/s")
    assert study_network(study(tmp_path, f"{OFFICE}, emulated-1g"), "emulated-1g").name == "emulated-1g"


def test_the_only_network_of_a_study_needs_no_name(tmp_path: Path) -> None:
    assert study_network(study(tmp_path, OFFICE), None).name == "office"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "several networks; choose one with --network: office, loopback"),
        ("ofice", r"--network: .*study.yaml: unknown network 'ofice' \(did you mean 'office'\?\)"),
        ("emulated-1g", "allowed: loopback, office"),
    ],
)
def test_a_network_that_a_study_does_not_have_is_refused_in_one_line(
    name: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        study_network(study(tmp_path, f"{OFFICE}, loopback"), name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "hosts", "per_host"),
    [
        ({"network": "emulated-300m"}, 2, 1),
        ({"network": "emulated-300m", "ranks_per_host": 2}, 2, 2),
        ({"network": "emulated-300m", "hosts": 1}, 1, 2),
        ({"network": "emulated-300m", "hosts": 3}, 3, 1),
        ({"network": "loopback"}, 1, 2),
        ({}, 1, 2),
    ],
)
def test_an_emulated_network_has_two_hosts_by_default(changes: dict[str, Any], hosts: int, per_host: int) -> None:
    made = request(**({"hosts": None} | changes))
    assert (made.hosts, made.ranks_per_host) == (hosts, per_host)
