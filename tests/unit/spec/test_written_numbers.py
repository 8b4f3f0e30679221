"""Numbers such as `48e9`, which YAML 1.1 reads as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import SpecError
from wirecost.spec import GPU, Cluster, Network, Stack, Study, Workload, parse_yaml, validate
from wirecost.spec.presets import named
from wirecost.spec.written_numbers import with_numbers

GPU_YAML = """\
name: mine
architecture: ampere
memory_bytes: 24e9
memory_bandwidth_Bps: 600E9
peak_flops: {bf16: 125e12, fp32: 31.2e12}
matrix_efficiency: 7e-1
source: datasheet
"""


def test_numbers_without_a_dot_are_numbers_in_a_gpu() -> None:
    gpu = validate(GPU, parse_yaml(GPU_YAML, "mine.yaml"), "mine.yaml")
    assert gpu.memory_bytes == 24_000_000_000
    assert gpu.memory_bandwidth_Bps == 600e9
    assert gpu.peak_flops == {"bf16": 125e12, "fp32": 31.2e12}
    assert gpu.matrix_efficiency == 0.7


def test_numbers_without_a_dot_are_numbers_in_other_specifications() -> None:
    workload = validate(Workload, {**named("workload", "gpt-tiny"), "vocab_size": "4e3"}, "mine")
    assert workload.vocab_size == 4000
    stack = validate(Stack, {**named("stack", "generic"), "host_forward_s": "3e-4"}, "mine")
    assert stack.host.forward_s == 3e-4
    cluster = validate(Cluster, {**named("cluster", "dgx-h100"), "nodes": "1e2"}, "mine")
    assert cluster.nodes == 100


def test_text_that_looks_like_a_number_stays_text_where_text_belongs() -> None:
    network = validate(Network, parse_yaml("name: 5e3\nnative: {environment: {NCCL_X: 4e2}}\n", "n"), "n")
    assert network.name == "5e3"
    assert network.native is not None
    assert network.native.environment == {"NCCL_X": "4e2"}
    assert with_numbers(Study.model_fields["hosts"].annotation, ["2x2", "2e1"]) == ["2x2", "2e1"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("24.5e-1", "fractional part"),
        ("-4e9", "greater than 0"),
        ("4e99", "can't be"),
        ("9" * 400, "can't be"),
        (True, "should be a number, not true"),
        ("24 GB", "unable to parse"),
        ("nan", "unable to parse"),
    ],
)
def test_numbers_that_cannot_be_are_refused(value: str | bool, message: str) -> None:
    with pytest.raises(SpecError, match=rf"^mine: memory_bytes: .*{message}"):
        validate(GPU, {**parse_yaml(GPU_YAML, "mine"), "memory_bytes": value}, "mine")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_every_number_is_read_back_from_its_text(number: float) -> None:
    assert with_numbers(float | None, str(number)) == number


@given(st.text())
def test_text_is_a_number_or_stays(text: str) -> None:
    value = with_numbers(int, text)
    assert value == text or isinstance(value, int | float)
