"""Tables: a fit finds what made the numbers, is judged on rows that it did not see, and is saved only if it is good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.model import ROW, made, predicted, seconds
from wirecost.calibration.calibrate import Options, calibrate
from wirecost.calibration.fit import Description, HoldOut, fit, leave_out, random_folds
from wirecost.calibration.inputs.gather import Inputs
from wirecost.calibration.inputs.rows import TableRow, iteration_row
from wirecost.calibration.inputs.table import Setting
from wirecost.calibration.presets import write_presets
from wirecost.calibration.properties import free_preset
from wirecost.calibration.result import Calibration
from wirecost.calibration.saved import read, save, write
from wirecost.calibration.table_rows import IterationRows
from wirecost.calibration.tables import fit_tables, named, read_tables
from wirecost.errors import SpecError
from wirecost.prediction.job import JobOptions, setup_of
from wirecost.prediction.predict import predict
from wirecost.spec import load_spec

TRUTH = {"stack megatron-deepspeed host_forward_s": 2.4e-3, "stack megatron-deepspeed vocabulary_bytes": 30.0}


FEW = ("gpu A100-SXM-80GB matrix_efficiency", "stack megatron-deepspeed host_forward_s")


def text_rows() -> list[dict[str, str]]:
    return [
        {
            **ROW,
            "id": f"{hidden}/{layers}/{mbs}",
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
        for hidden in (1024, 2048, 4096)
        for layers in (4, 24)
        for mbs in (1, 4, 8)
    ]


def rows(noise: float = 0.0) -> list[TableRow]:
    """Rows whose measured times the model itself made, under TRUTH."""
    table = [iteration_row(row, index) for index, row in enumerate(text_rows(), start=1)]
    times = IterationRows(table).predict(TRUTH)
    times = times * np.exp(noise * np.random.default_rng(0).standard_normal(len(table)))
    for row, time in zip(table, times, strict=True):
        row.measured = float(time)
    return table


def csv(path: Path, table: Sequence[dict[str, str]]) -> Path:
    path.write_text("\n".join([",".join(table[0]), *(",".join(row.values()) for row in table)]) + "\n")
    return path


def measured_table(path: Path, count: int, factor: float = 1.0, scatter: float = 0.0) -> Path:
    """A CSV of the first `count` rows, which take `factor` times as long as the presets say; every other one takes a
    factor of exp(`scatter`) more, the others as much less."""
    table = text_rows()[:count]
    times = IterationRows([iteration_row(row, 1) for row in table]).predict({})
    for index, (row, time) in enumerate(zip(table, times, strict=True)):
        row["iter_s"] = f"{time * factor * np.exp(scatter * (-1) ** index):.6g}"
    return csv(path, table)


def calibrated(path: Path, **options: object) -> Calibration:
    return calibrate(Inputs(tables=[path]), Options(**options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """A calibration on rows that take longer than the presets say."""
    return calibrated(measured_table(tmp_path_factory.mktemp("slower") / "slow.csv", 12, 1.4))


def test_a_fit_finds_the_properties_that_made_the_times() -> None:
    problem = IterationRows(rows())
    # So uncertain that what the presets say counts for nothing.
    properties = [replace(p, uncertainty=10.0) for p in named(list(TRUTH), problem.table)]
    found = fit(problem, properties, Description("rows", ()))
    for name, value in TRUTH.items():
        assert found.values[name] == pytest.approx(value, rel=0.03)
    assert {p.start for p in found.properties} == {free_preset(name).start for name in TRUTH}
    assert found.errors.fitted < 5e-3 < found.errors.presets
    assert found.beats_presets


def test_a_property_that_no_row_depends_on_is_not_fitted() -> None:
    unused = "link infiniband-hdr shared_efficiency"  # one GPU never uses the network
    problem = IterationRows(rows())
    found = fit(problem, [*named(list(TRUTH), problem.table), free_preset(unused)], Description("rows", ()))
    assert unused not in found.values
    last = found.properties[-1]
    assert (last.name, last.value, last.determined) == (unused, last.start, False)
    assert last.reason == "no measurement depends on it"


def test_rows_too_few_for_a_property_say_so(tmp_path: Path) -> None:
    (found,) = calibrated(measured_table(tmp_path / "t.csv", 2, 1.5)).fits
    assert not found.values
    reasons = {p.reason for p in found.properties if p.measurements}
    assert reasons
    assert reasons == {"fewer than 3 measurements depend on it"}
    assert found.errors.held_out is None


def test_rows_left_out_are_not_seen() -> None:
    problem = IterationRows(rows(noise=0.05))
    properties = named(list(TRUTH), problem.table)
    folds = random_folds(problem.rows, 3)
    assert sum(int(fold.sum()) for fold in folds) == problem.rows
    errors = leave_out(problem, properties, {}, folds)
    assert errors is not None
    assert not np.isnan(errors).any()
    assert 0.01 < np.abs(errors).mean() < 0.1
    by_hidden = HoldOut(labels=tuple(r.parameters["hidden"] for r in problem.table), column="hidden")
    assert [int(mask.sum()) for mask in by_hidden.masks(problem.rows)] == [6, 6, 6]
    with pytest.raises(SpecError, match="same tp"):
        HoldOut(labels=("1",) * 3, column="tp").masks(3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stack nowhere hidden_bytes", "unknown stack"),
        ("stack generic colour", "unknown stack property"),
        ("source vtrain bias", "unknown kind"),
        ("hidden_bytes", "is written"),
        ("gpu A100-SXM-80GB peak_flops", "unknown gpu property"),
        ("stack fsdp-flash hidden_bytes", "no row uses it"),
    ],
)
def test_only_named_properties_of_the_rows_can_be_fitted(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=words):
        calibrated(measured_table(tmp_path / "t.csv", 6), properties=(name,))


def test_a_fit_that_does_not_beat_the_presets_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from wirecost.cli import main

    def run(table: Path, *more: str) -> tuple[int, str]:
        saved = str(tmp_path / "mine.yaml")
        free = [part for name in FEW for part in ("--free", name)]
        with pytest.raises(SystemExit) as ending:
            main(["calibrate", str(table), "--save", saved, "--format", "json", *free, *more])
        return int(ending.value.code or 0), capsys.readouterr().err

    # The presets made these times; all that a fit can learn is their scatter.
    noise = measured_table(tmp_path / "noise.csv", 12, scatter=0.2)
    code, text = run(noise)
    assert code == 1
    assert "rows left out" in text
    assert "--force" in text
    assert not (tmp_path / "mine.yaml").exists()
    code, _ = run(noise, "--force")
    assert code == 0
    assert (tmp_path / "mine.yaml").exists()
    (tmp_path / "mine.yaml").unlink()
    code, text = run(measured_table(tmp_path / "slow.csv", 12, 1.4))
    assert (code, "wrote" in text) == (0, True)
    (tmp_path / "mine.yaml").unlink()
    # Nothing is determined: there is nothing to save, forced or not.
    code, text = run(measured_table(tmp_path / "two.csv", 2, 1.4), "--force")
    assert code == 1
    assert "determine no property" in text
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_saved_calibration_changes_predictions(slower: Calibration, tmp_path: Path, kind: str) -> None:
    calibration = slower
    (found,) = calibration.fits
    assert found.errors.fitted < found.errors.presets
    if kind == "file":
        (path,) = save(calibration, tmp_path / "mine.yaml")
    else:
        path = write(calibration, tmp_path / "mine")[0].parent
    loaded = read(path)
    assert loaded.values == {name: float(f"{value:.6g}") for name, value in found.values.items()}
    setup = made("gpt-1.3b", "selene", gpus=8, stack="megatron-deepspeed", precision="fp16")
    changed = loaded.applied(setup)
    assert seconds(predict(changed)) > 1.2 * seconds(predict(setup))
    assert changed.stack.accuracy.spread == pytest.approx(loaded.spread)
    other = made("gpt-1.3b", "selene", gpus=8, stack="fsdp-flash")
    assert loaded.applied(other).stack == other.stack


def test_a_prediction_takes_the_stack_that_was_calibrated(slower: Calibration, tmp_path: Path) -> None:
    (path,) = save(slower, tmp_path / "mine.yaml")
    job: JobOptions = {"cluster": "selene", "gpus": 8, "precision": "fp16", "calibration": path}
    assert slower.fitted_stack("mine.yaml") == setup_of("gpt-1.3b", job).stack.name == "megatron-deepspeed"
    other: JobOptions = {"cluster": "dgx-h100", "gpus": 8, "stack": "fsdp-flash", "calibration": path}
    with pytest.raises(SpecError, match=r"mine.yaml: fits .*stack megatron-deepspeed.* and nothing of this job"):
        setup_of("gpt-1.3b", other)


def test_what_is_not_determined_is_not_saved(slower: Calibration, tmp_path: Path) -> None:
    calibration = slower
    (found,) = calibration.fits
    open_ = [p.name for p in found.properties if not p.determined]
    assert open_
    (path,) = save(calibration, tmp_path / "mine.yaml")
    assert not set(open_) & set(read(path).values)
    data = json.loads(json.dumps(calibration.as_json()))
    assert set(data["values"]) == set(found.values)
    assert [p["name"] for p in data["fits"][0]["properties"] if not p["determined"]] == open_


def test_calibrations_of_the_first_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "calibrated_on: [runs.csv]\nrows: 8\nerror_fitted: 0.01\nerror_held_out: null\nspread: 0.07\n"
        "values:\n  gpu A100-SXM-80GB matrix_efficiency: 0.5\n  link nvlink3 latency: 3.5e-05\n"
    )
    calibration = read(path)
    assert calibration.spread == 0.07
    setup = calibration.applied(made("gpt-1.3b", "selene", gpus=8))
    assert setup.cluster.accelerator.matrix_efficiency == 0.5
    assert float(setup.cluster.intra_node.latency or 0) == 3.5e-05


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n", "unknown key 'a'"),
        ("values: [1]\n", "values"),
        ("values: {stack generic colour: 1}\n", "unknown stack property"),
        ("values: {stack generic hidden_bytes: -1}\n", "greater than 0"),
        ("values: {link nvlink3 efficiency: 40}\n", "lies outside 0.01 to 1"),
        ("values: {}\nformat_version: 9\n", "newer"),
        ("values: {stack generic hidden_bytes: true}\n", "a positive number"),
        ("values: {stack generic hidden_bytes: 1e9}\n", "lies outside 4 to 5000"),
        ("values: {stack generic hidden_bytes: 1e30}\n", "can't be"),
        ("values: {stack generic hidden_bytes: 1.0e+30}\n", "can't be"),
        ("values: {stack generic hidden_bytes: .nan}\n", "hidden_bytes"),
        ("values: {stack generic hidden_bytes: 9}\nspread: 0x10\n", "spread: .*less than or equal to 5"),
        ("values: {stack generic hidden_bytes: 9}\nspread: 6\n", "spread: .*less than or equal to 5"),
    ],
)
def test_damaged_calibrations_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=words) as refused:
        read(path)
    assert str(path) in str(refused.value)


def collectives(rate_Bps: float, latency_s: float, **more: str) -> list[dict[str, str]]:
    return [
        {
            "collective": "all_reduce",
            "gpus": str(n),
            "nodes": "1",
            "gpu": "A100",
            "interconnect": "NVLink3",
            "size_bytes": str(size),
            "time_us": str(1e6 * (latency_s + 2 * (n - 1) / n * size / rate_Bps)),
            **more,
        }
        for n in (2, 4, 8)
        for size in (2**k for k in range(20, 31))
    ]


def test_links_are_fitted_to_benchmarks(tmp_path: Path) -> None:
    path = csv(tmp_path / "b.csv", collectives(200e9, 30e-6))
    (found,) = calibrated(path).fits
    assert found.name == "link nvlink3"
    assert found.errors.fitted < 0.02 < found.errors.presets
    assert found.values["link nvlink3 efficiency"] == pytest.approx(200 / 300, rel=0.03)


def test_a_benchmark_of_an_unnamed_link_is_of_nobodys_cluster(tmp_path: Path) -> None:
    path = csv(tmp_path / "b.csv", collectives(200e9, 30e-6, gpu="", interconnect=""))
    with pytest.raises(SpecError, match="gpu is empty"):
        read_tables([path], Setting())
    path = csv(tmp_path / "c.csv", collectives(200e9, 30e-6, interconnect="fast"))
    with pytest.raises(SpecError, match="names no known link"):
        read_tables([path], Setting())
    tables = read_tables([path], Setting(cluster=load_spec("cluster", "polaris")))
    assert {row.link.name for row in tables.collectives} == {"nvlink3-polaris"}


def test_tables_of_several_kinds_are_fitted_together(tmp_path: Path) -> None:
    benchmarks = csv(tmp_path / "b.csv", collectives(200e9, 30e-6))
    times = measured_table(tmp_path / "t.csv", 12, 1.4)
    tables = read_tables([benchmarks, times], Setting())
    of_links, of_times = fit_tables(tables, names=FEW)
    assert of_links.name == "link nvlink3"
    assert of_times.name == "iterations"
    assert not set(of_links.values) & set(of_times.values)


def test_presets_are_rewritten_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    path = tmp_path / "links" / "nvlink3.yaml"
    path.write_text("# kept\nrate: 300 GB/s\nefficiency: 0.1  # old\nsource: s\n")
    write_presets(
        {"link nvlink3 efficiency": 0.73512, "link nvlink3 latency": 3.4e-5}, tmp_path, {"link nvlink3": 'a "fit"'}
    )
    assert path.read_text() == (
        "# kept\nrate: 300 GB/s\nefficiency: 0.7351\nsource: s\nlatency: 34 us\nprovenance: measured\n"
        "calibration: \"a 'fit'\"\n"
    )


def test_uncalibrated_stacks_say_so() -> None:
    codes = {w.code for w in predicted(gpus=8, stack="generic").breakdown.diagnostics}
    assert "uncalibrated_stack" in codes
