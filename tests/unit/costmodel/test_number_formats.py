"""Formats of 8 and 4 bits: their peaks, their rates, and the GPUs that have them."""

from __future__ import annotations

from typing import Any

import pytest

from support.model import predicted, seconds
from wirecost.costmodel.machine import SCALING_RATES, peak_flops
from wirecost.errors import SpecError
from wirecost.spec import GPU, MatrixPrecision, gpu, load_spec

LOW = [each for each in MatrixPrecision if each.is_low]
JOB: dict[str, Any] = {
    "gpus": 64, "tensor_parallel": 8, "sequence_parallel": True, "stack": "megatron-core", "data_parallel": "zero1",
}  # fmt: skip


def test_every_low_format_has_a_rate_of_its_own() -> None:
    assert set(SCALING_RATES) == set(LOW)
    assert all(0 < rate <= 1 for rate in SCALING_RATES.values())


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("H100-SXM-80GB", "fp8", 1.979e15),
        ("H100-SXM-80GB", "fp8-blockwise", 1.979e15),
        ("B200-SXM-192GB", "mxfp8", 4.5e15),
        ("B200-SXM-192GB", "nvfp4", 9e15),
        ("GB300-NVL72", "nvfp4", 1.5e16),
        ("MI355X", "mxfp8", 5.0332e15),
    ],
)
def test_peaks_are_those_of_data_sheets(name: str, precision: str, peak: float) -> None:
    assert peak_flops(gpu(name), MatrixPrecision(precision)) == peak


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("H100-SXM-80GB", "mxfp8"),
        ("H100-SXM-80GB", "nvfp4"),
        ("A100-SXM-80GB", "fp8"),
        ("A100-SXM-80GB", "fp8-blockwise"),
        ("MI355X", "nvfp4"),
        ("MI300X", "mxfp8"),
    ],
)
def test_formats_that_a_gpu_has_not_are_refused_with_those_it_has(name: str, precision: str) -> None:
    with pytest.raises(SpecError, match=f"has no {precision} matrix products; it has .*bf16.*peak_flops"):
        peak_flops(gpu(name), MatrixPrecision(precision))


def test_a_gpu_written_out_may_state_the_peak_of_any_format() -> None:
    data = {**gpu("H100-SXM-80GB").model_dump(), "peak_flops": {"bf16": 1e15, "mxfp8": 1.5e15}}
    assert peak_flops(GPU.model_validate(data), MatrixPrecision.MXFP8) == 1.5e15


def test_formats_are_faster_the_fewer_their_bits_and_scales() -> None:
    times = {
        precision: seconds(predicted("llama-3-70b", "dgx-b200", **JOB, matrix_precision=precision))
        for precision in (None, "fp8", "mxfp8", "fp8-blockwise", "nvfp4")
    }
    assert times["nvfp4"] < times["fp8"] < times["mxfp8"] < times["fp8-blockwise"] < times[None]


def test_attention_output_layer_and_traffic_stay_in_the_precision_of_training() -> None:
    plain = predicted("llama-3-70b", "dgx-b200", **JOB)
    low = predicted("llama-3-70b", "dgx-b200", **JOB, matrix_precision="nvfp4")
    assert low.machine.attention_peak_flops == plain.machine.attention_peak_flops
    assert low.machine.element_bytes == plain.machine.element_bytes
    assert float(low.times.tensor_s) == pytest.approx(float(plain.times.tensor_s), rel=0.01)
    assert float(low.memory.total) == float(plain.memory.total)


def test_a_format_without_a_measured_row_says_so() -> None:
    blockwise = predicted("llama-3-70b", **JOB, matrix_precision="fp8-blockwise")
    assert any("matrix_precision fp8-blockwise" in d.message for d in blockwise.breakdown.diagnostics)
    usual = predicted("llama-3-70b", **JOB, matrix_precision="fp8")
    assert not any("matrix_precision" in d.message for d in usual.breakdown.diagnostics)


def test_presets_state_peaks_of_formats_of_the_same_bits_only_once() -> None:
    gpus = [load_spec("gpu", name) for name in ("H100-SXM-80GB", "B200-SXM-192GB", "MI355X")]
    formats = [each for gpu in gpus for each in gpu.peak_flops]
    assert len(formats) > len(gpus)
    assert [each for each in formats if each.unscaled is not each] == []
