"""What can't be calibrated on is refused, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.breakdown import Source
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.inputs.gather import Inputs, gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.saved import read
from wirecost.errors import SpecError, WirecostError


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cores", 0),
        ("cores", 1 << 20),
        ("cores", "2"),
        ("cores", True),
        ("memory_bytes", -1),
        ("gpus", "A100"),
        ("gpus", [1]),
        ("processor", 7),
    ],
)
def test_an_environment_that_cannot_be_is_named(tmp_path: Path, key: str, value: object) -> None:
    run = experiment(4, 256, 4)
    directory = keep(tmp_path / "one", run, measured(run))
    path = directory / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(SpecError, match=rf"environment\.json: {key}") as refusal:
        gather([directory], TraceOptions())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("request", "hosts"), 0),
        (("request", "hosts"), 1e9),
        (("request", "ranks_per_host"), True),
        (("request", "groups"), []),
        (("network", "name"), "../x"),
        (("network", "emulated"), "no"),
        (("network", "nominal_rate_bps"), 1e30),
    ],
)
def test_a_benchmark_that_cannot_be_is_named(tmp_path: Path, place: tuple[str, str], value: object) -> None:
    path = bench(tmp_path / "n.json", 2)
    data = json.loads(path.read_text())
    record, key = place
    data[record] = (data.get(record) or {}) | {key: value}
    path.write_text(json.dumps(data))
    with pytest.raises(SpecError, match=rf"n\.json: no sound benchmark: {record}\.{key}") as refusal:
        gather([path], TraceOptions())
    assert "\n" not in str(refusal.value)


def test_what_cannot_be_calibrated_on_is_refused(store: Path, tmp_path: Path) -> None:
    one = experiment(4, 256, 4)
    alone = tmp_path / "b.json"
    alone.write_text(measured(one).model_dump_json())
    with pytest.raises(SpecError, match="what ran"):
        gather([alone], TraceOptions())
    imported = measured(one).model_copy(update={"source": Source.IMPORTED})
    alone.write_text(imported.model_dump_json())
    with pytest.raises(SpecError, match="--workload"):
        gather([alone], TraceOptions())
    alone.write_text(imported.model_copy(update={"source": Source.PREDICTED}).model_dump_json())
    with pytest.raises(SpecError, match="prediction"):
        gather([alone], TraceOptions())
    with pytest.raises(WirecostError):
        gather([tmp_path / "nothing"], TraceOptions())
    with pytest.raises(SpecError, match="nothing to calibrate on"):
        calibrate(Inputs())
    with pytest.raises(SpecError, match="tells nothing about compute"):
        calibrate(gather([bench(tmp_path / "n.json", 2)], TraceOptions()))
    with pytest.raises(SpecError, match="no sound benchmark"):
        gather([bench(tmp_path / "n.json", 2, rows=[{"size": 1}])], TraceOptions())
    with pytest.raises(SpecError, match="no calibration"):
        read(tmp_path)
    unfinished = keep(tmp_path / "u", one, measured(one))
    (unfinished / "breakdown.json").unlink()
    with pytest.raises(SpecError, match="did not finish"):
        gather([unfinished], TraceOptions())
    found = gather([store], TraceOptions())
    found.runs.append(replace(found.runs[0], device="Another"))
    with pytest.raises(SpecError, match="different devices"):
        calibrate(found)
