"""What can't be calibrated on is refused, with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.breakdown import Source
from wirecost.calibration.assemble import calibrate, read
from wirecost.calibration.sources import Found, Told, gather
from wirecost.errors import SpecError, WirecostError


def test_what_cannot_be_calibrated_on_is_refused(store: Path, tmp_path: Path) -> None:
    one = experiment(4, 256, 4)
    alone = tmp_path / "b.json"
    alone.write_text(measured(one).model_dump_json())
    with pytest.raises(SpecError, match="what ran"):
        gather([alone], Told())
    imported = measured(one).model_copy(update={"source": Source.IMPORTED})
    alone.write_text(imported.model_dump_json())
    with pytest.raises(SpecError, match="--workload"):
        gather([alone], Told())
    alone.write_text(imported.model_copy(update={"source": Source.PREDICTED}).model_dump_json())
    with pytest.raises(SpecError, match="prediction"):
        gather([alone], Told())
    with pytest.raises(WirecostError):
        gather([tmp_path / "nothing"], Told())
    with pytest.raises(SpecError, match="nothing to calibrate on"):
        calibrate(Found())
    with pytest.raises(SpecError, match="tells nothing about compute"):
        calibrate(gather([bench(tmp_path / "n.json", 2)], Told()))
    with pytest.raises(SpecError, match="no sound benchmark"):
        gather([bench(tmp_path / "n.json", 2, rows=[{"size": 1}])], Told())
    with pytest.raises(SpecError, match="no calibration"):
        read(tmp_path)
    unfinished = keep(tmp_path / "u", one, measured(one))
    (unfinished / "breakdown.json").unlink()
    with pytest.raises(SpecError, match="did not finish"):
        gather([unfinished], Told())
    found = gather([store], Told())
    found.runs.append(replace(found.runs[0], device="Another"))
    with pytest.raises(SpecError, match="different devices"):
        calibrate(found)
