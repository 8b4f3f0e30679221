"""Calibration: it finds what made the numbers, holds out honestly, and stores what it found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.model import ROW, made, predicted, seconds
from wirecost.errors import SpecError
from wirecost.model.calibrate import Problem, cross_validate, fit, grouped_folds, random_folds
from wirecost.model.calibrate_links import fit_links
from wirecost.model.calibrate_tables import calibrate_tables
from wirecost.model.predict import predict
from wirecost.model.properties import start_value
from wirecost.model.rows import Configuration, configuration
from wirecost.model.store import apply_calibration, save_calibration, write_presets

TRUTH = {"stack megatron-deepspeed host_forward_s": 2.4e-3, "stack megatron-deepspeed vocabulary_bytes": 30.0}


def rows(noise: float = 0.0) -> list[Configuration]:
    """Rows whose measured times the model itself made, under TRUTH."""
    found = []
    for hidden in (1024, 2048, 4096):
        for layers in (4, 24):
            for mbs in (1, 4, 8):
                row = {
                    **ROW,
                    "hidden": str(hidden),
                    "n_layers": str(layers),
                    "mbs": str(mbs),
                    "tp": "1",
                    "pp": "1",
                    "n_gpus": "1",
                    "dp": "1",
                    "gas": "1",
                    "gbs": str(mbs),
                }
                found.append(configuration(row, len(found)))
    times = Problem(found).predict(TRUTH) * np.exp(noise * np.random.default_rng(0).standard_normal(len(found)))
    for one, time in zip(found, times, strict=True):
        one.measured_s = float(time)
    return found


def test_a_fit_finds_the_properties_that_made_the_times() -> None:
    found = fit(Problem(rows()), list(TRUTH), pull=1e-4)
    for name, value in TRUTH.items():
        assert found.values[name] == pytest.approx(value, rel=0.03)
        assert found.start[name] == start_value(name) != value
    assert found.mape < 1e-3


def test_a_property_that_rows_say_nothing_about_stays() -> None:
    name = "link infiniband-hdr shared_efficiency"  # one GPU never uses the network
    found = fit(Problem(rows()), [*TRUTH, name])
    assert found.values[name] == pytest.approx(start_value(name), rel=1e-3)


def test_held_out_rows_are_not_seen() -> None:
    problem = Problem(rows(noise=0.05))
    folds = random_folds(len(problem.rows), 3)
    assert sum(f.sum() for f in folds) == len(problem.rows)
    errors = cross_validate(problem, list(TRUTH), folds, evaluations=20)
    assert not np.isnan(errors).any()
    assert 0.01 < np.abs(errors).mean() < 0.1
    by_hidden = grouped_folds([r.parameters["hidden"] for r in problem.rows])
    assert [int(f.sum()) for f in by_hidden] == [6, 6, 6]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stack nowhere hidden_bytes", "unknown stack"),
        ("stack generic colour", "unknown stack property"),
        ("source vtrain bias", "unknown kind"),
        ("hidden_bytes", "is written"),
    ],
)
def test_only_named_properties_can_be_fitted(name: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        fit(Problem(rows()), [name])


def test_links_are_fitted_to_benchmarks() -> None:
    sizes = [2**k for k in range(20, 31)]
    rate, latency = 200e9, 30e-6
    table = [
        {
            "collective": "all_reduce",
            "gpus": str(n),
            "nodes": "1",
            "gpu": "A100",
            "interconnect": "NVLink3",
            "size_bytes": str(s),
            "time_us": str(1e6 * (latency + 2 * (n - 1) / n * s / rate)),
        }
        for n in (2, 4, 8)
        for s in sizes
    ]
    found = fit_links(table)
    assert [f.link for f in found] == ["nvlink3"]
    assert found[0].mape < 0.02 < found[0].before
    assert found[0].values["link nvlink3 efficiency"] == pytest.approx(rate / 300e9, rel=0.03)


def test_a_calibration_file_changes_predictions(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    slow = [
        {**ROW, "id": f"r{i}", "mbs": str(m), "gbs": str(16 * m), "iter_s": str(0.9 * m)}
        for i, m in enumerate((1, 2, 4, 8))
    ]
    table.write_text("\n".join([",".join(ROW), *(",".join(r.values()) for r in slow)]) + "\n")
    result = calibrate_tables([table], free=["gpu A100-SXM-80GB matrix_efficiency"], folds=0)
    assert result.mape < result.before
    path = tmp_path / "mine.yaml"
    save_calibration(result, path, [str(table)])
    setup = made("gpt-1.3b", "selene", gpus=8, stack="megatron-deepspeed", precision="fp16")
    assert seconds(predict(apply_calibration(setup, path))) > 1.2 * seconds(predict(setup))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n", "values"),
        ("values: {stack generic colour: 1}\n", "property"),
        ("values: {stack generic hidden_bytes: -1}\n", "positive"),
        ("values: {stack generic hidden_bytes: 1}\nspread: 0x10\n", "spread: a positive number"),
        ("values: {gpu H100-SXM-80GB matrix_efficiency: 7}\n", "matrix_efficiency"),
    ],
)
def test_damaged_calibration_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        apply_calibration(made(gpus=8), path)


def test_presets_are_rewritten_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    path = tmp_path / "links" / "nvlink3.yaml"
    path.write_text("# kept\nrate: 300 GB/s\nefficiency: 0.1  # old\nsource: s\n")
    write_presets(
        {"link nvlink3 efficiency": 0.73512, "link nvlink3 latency": 3.4e-5}, tmp_path, {"link nvlink3": 'a "fit"'}
    )
    assert path.read_text() == (
        "# kept\nrate: 300 GB/s\nefficiency: 0.7351\nsource: s\nlatency: 34 us\ncalibration: \"a 'fit'\"\n"
    )


def test_uncalibrated_stacks_say_so() -> None:
    codes = {w.code for w in predicted(gpus=8, stack="generic").breakdown.diagnostics}
    assert "uncalibrated_stack" in codes
