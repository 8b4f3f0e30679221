"""Tables of communication fractions: they are of the cluster that somebody names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirecost.calibration.calibrate import Options, calibrate
from wirecost.calibration.inputs.columns import CannotExpressError
from wirecost.calibration.inputs.fractions import fraction_row, fraction_rows
from wirecost.calibration.inputs.gather import Inputs
from wirecost.calibration.inputs.table import Setting
from wirecost.errors import SpecError
from wirecost.prediction.table_validation import predict_fraction, validate_table
from wirecost.spec import load_spec

ROW = {
    "workload": "GPT-2-Large",
    "protocol": "TCP/IP",
    "scaling": "strong",
    "gpus": "4",
    "global_batch": "16",
    "micro_batch": "4",
    "comm_fraction": "0.8",
}
OWN = {"cluster": "pinnacles-a-tcp", "stack": "megatron-lm-v3", "precision": "fp16", "act_recompute": "full"}
PINNACLES = Setting(testbed=load_spec("testbed", "pinnacles-a"))


def csv(path: Path, *rows: dict[str, str]) -> Path:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


def test_a_table_that_nobody_named_a_cluster_for_is_refused(tmp_path: Path) -> None:
    table = csv(tmp_path / "t.csv", ROW)
    with pytest.raises(SpecError, match="nothing says on which cluster"):
        validate_table(table)
    with pytest.raises(SpecError, match="nothing says on which cluster"):
        calibrate(Inputs(tables=[table]))


def test_columns_a_testbed_and_an_option_name_the_same_cluster() -> None:
    by_testbed = fraction_row(ROW, 1, PINNACLES)
    by_columns = fraction_row({**ROW, **OWN}, 1, Setting())
    by_name = fraction_row({**ROW, "testbed": "pinnacles-a"}, 1, Setting())
    by_option = fraction_row(
        {**ROW, **OWN, "cluster": ""}, 1, Setting(cluster=load_spec("cluster", "pinnacles-a-tcp"))
    )
    fractions = {predict_fraction(row, {}) for row in (by_testbed, by_columns, by_name, by_option)}
    assert len(fractions) == 1
    assert None not in fractions
    assert by_testbed.key.stack == "megatron-lm-v3"
    elsewhere = fraction_row({**ROW, **OWN, "cluster": "selene"}, 1, PINNACLES)
    assert elsewhere.key.gpu == "A100-SXM-80GB"  # the row's own word counts


def test_one_cluster_is_not_three_networks() -> None:
    setting = Setting(cluster=load_spec("cluster", "pinnacles-a-tcp"))
    with pytest.raises(SpecError, match="2 protocols"):
        fraction_rows([ROW, {**ROW, "protocol": "RDMA"}], setting)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workload": "gpt-9"}, "unknown workload"),
        ({"protocol": "carrier pigeon"}, "unknown protocol"),
        ({"gpus": ""}, "gpus is empty"),
        ({"gpus": "nan"}, "can't be"),
        ({"micro_batch": "", "global_batch": ""}, "micro_batch and global_batch"),
        ({"cluster": "/etc/passwd"}, "unknown cluster"),
        ({"stack": "x.yaml"}, "unknown stack"),
        ({"precision": "fp5"}, "unknown precision"),
        ({"act_recompute": "some"}, "unknown act_recompute"),
        ({"testbed": "nowhere"}, "unknown testbed"),
    ],
)
def test_what_cannot_be_expressed_says_why(change: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotExpressError, match=reason):
        fraction_row({**ROW, **change}, 1, PINNACLES)


@given(st.sampled_from(sorted(ROW)), st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_row_or_a_reason(column: str, text: str) -> None:
    try:
        row = fraction_row({**ROW, column: text}, 1, PINNACLES)
    except CannotExpressError as reason:
        assert str(reason)
    else:
        assert float(row.layout.world) > 0


def test_out_of_memory_is_no_fraction() -> None:
    (row,) = fraction_rows([{**ROW, "comm_fraction": "OOM"}], PINNACLES).rows
    assert row.measured is None


def test_fractions_are_fitted_on_the_networks_that_the_rows_use(tmp_path: Path) -> None:
    rows = []
    for gpus in (4, 8):
        for micro in (1, 2, 4):
            row = {**ROW, "gpus": str(gpus), "micro_batch": str(micro), "global_batch": str(gpus * micro)}
            fraction = predict_fraction(fraction_row(row, 1, PINNACLES), {"link tcp-10g efficiency": 0.3})
            assert fraction is not None
            rows.append({**row, "comm_fraction": f"{fraction:.4f}"})
    calibration = calibrate(Inputs(tables=[csv(tmp_path / "t.csv", *rows)]), Options(testbed=PINNACLES.testbed))
    (fit,) = calibration.fits
    assert fit.unit == "fraction"
    assert fit.values["link tcp-10g efficiency"] == pytest.approx(0.3, rel=0.1)
    assert not any("infiniband-edr" in p.name for p in fit.properties)
    assert fit.beats_presets
