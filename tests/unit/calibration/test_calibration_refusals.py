"""What can't be calibrated on is refused, with the reason."""

from __future__ import annotations

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
