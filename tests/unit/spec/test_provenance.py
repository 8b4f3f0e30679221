"""What the figures of presets rest on, and that intervals and warnings depend on it alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from support.model import made
from wirecost.costmodel.setup import Setup
from wirecost.errors import SpecError
from wirecost.prediction.predict import predict
from wirecost.spec import GPU, Link, Provenance, Stack, load_spec, validate
from wirecost.spec.presets import named, names

KINDS = [("gpu", GPU), ("link", Link), ("stack", Stack)]


@pytest.mark.parametrize("kind", ["gpu", "link", "stack"])
def test_every_preset_states_its_provenance(kind: str) -> None:
    assert names(kind)
    for name in names(kind):
        assert "provenance" in named(kind, name), name
        spec = load_spec(kind, name)
        assert spec.source
        if spec.provenance in (Provenance.MEASURED, Provenance.DERIVED):
            assert spec.calibration, name


@pytest.mark.parametrize(
    ("name", "provenance"),
    [
        ("H100-SXM-80GB", "measured"),
        ("H200-SXM-141GB", "derived"),
        ("GH200-96GB", "derived"),
        ("H100-SXM-96GB", "derived"),
        ("B300-SXM-288GB", "measured"),
        ("A100-PCIe-80GB", "judgement"),
        ("V100-SXM2-32GB", "measured"),
        ("A40", "datasheet"),
    ],
)
def test_only_what_was_measured_counts_as_measured(name: str, provenance: str) -> None:
    assert load_spec("gpu", name).provenance == provenance


@pytest.mark.parametrize(("kind", "model"), KINDS)
@pytest.mark.parametrize("provenance", ["measured", "derived"])
def test_what_claims_a_measurement_says_which(kind: str, model: type[GPU | Link | Stack], provenance: str) -> None:
    data = {**named(kind, names(kind)[0]), "provenance": provenance}
    data.pop("calibration", None)
    with pytest.raises(SpecError, match="needs the key 'calibration'"):
        validate(model, data, "mine")
    assert validate(model, {**data, "calibration": "my runs"}, "mine").provenance == provenance
    data.pop("provenance")
    assert validate(model, data, "mine").provenance is Provenance.JUDGEMENT  # nobody says
    with pytest.raises(SpecError, match=r"provenance: unknown value 'mesured'.*did you mean 'measured'"):
        validate(model, {**data, "provenance": "mesured"}, "mine")


def with_gpu(setup: Setup, **changes: object) -> Setup:
    gpu = setup.cluster.accelerator.model_copy(update=changes)
    return replace(setup, cluster=setup.cluster.model_copy(update={"gpu": gpu}))


def width(setup: Setup) -> float:
    interval = predict(setup).breakdown.interval
    assert interval is not None
    return math.log(interval.high_ns / interval.low_ns) / 2


def codes(setup: Setup) -> set[str]:
    return {w.code for w in predict(setup).breakdown.diagnostics}


def test_intervals_and_warnings_depend_on_the_provenance_alone() -> None:
    setup = made("mpt-7b", "dgx-h100", gpus=8, stack="fsdp-flash", micro_batch=4)
    assert setup.cluster.accelerator.is_measured
    widths = {p: width(with_gpu(setup, provenance=p)) for p in Provenance}
    assert widths[Provenance.MEASURED] < widths[Provenance.DERIVED] < widths[Provenance.DATASHEET]
    assert widths[Provenance.DATASHEET] == widths[Provenance.JUDGEMENT]
    for provenance in Provenance:
        changed = with_gpu(setup, provenance=provenance)
        assert ("uncalibrated_gpu" in codes(changed)) == (provenance is not Provenance.MEASURED)
        # What the texts say changes nothing.
        reworded = with_gpu(setup, provenance=provenance, calibration="judgement, fitted to nothing", source="x")
        assert width(reworded) == widths[provenance]
        assert codes(reworded) == codes(changed)
    total = predict(setup).total_s
    assert {predict(with_gpu(setup, provenance=p)).total_s for p in Provenance} == {total}


def test_networks_and_stacks_that_nobody_measured_widen_the_interval() -> None:
    setup = made("mpt-7b", "dgx-h100", gpus=16, stack="fsdp-flash", micro_batch=4)
    link = setup.cluster.inter_node.model_copy(update={"provenance": Provenance.DATASHEET})
    network = replace(setup, cluster=setup.cluster.model_copy(update={"inter_node": link}))
    assert width(network) > width(setup)
    assert codes(network) - codes(setup) == {"uncalibrated_network"}
    stack = replace(setup, stack=setup.stack.with_values({"provenance": Provenance.JUDGEMENT}))
    assert width(stack) > width(setup)
    assert codes(stack) - codes(setup) == {"uncalibrated_stack"}
    # A network that isn't crossed has no say.
    inside = replace(network, gpus=8, global_batch=32)
    assert "uncalibrated_network" not in codes(inside)
