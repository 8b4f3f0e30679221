"""One-rank runs, and the folder that is calibrated on them: made once, only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.calibration.calibrate import calibrate
from wirecost.calibration.inputs.gather import gather
from wirecost.calibration.inputs.traces import TraceOptions
from wirecost.calibration.saved import write
from wirecost.spec import Precision


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one-rank")
    for layers, hidden in ((4, 256), (2, 384), (8, 128)):
        for micro_batch in (1, 4, 8):
            one = experiment(layers, hidden, micro_batch)
            keep(root, one, measured(one))
    return root


@pytest.fixture(scope="session")
def folder(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("mine")
    files = [bench(where / f"bench-{hosts}.json", hosts) for hosts in (2, 4)]
    made = calibrate(gather([store, *files], TraceOptions()))
    write(made, where / "out")
    fit = made.of_stacks[Precision.FP32]
    assert max(map(abs, fit.row_errors)) < 0.06
    assert fit.held_out_errors is not None
    assert max(map(abs, fit.held_out_errors)) < 0.1
    assert fit.beats_presets
    fitted = {p.name: p for p in fit.properties}
    assert fitted["gpu cpu-abacus-9 peak_flops"].value == pytest.approx(70e9, rel=0.2)
    assert fitted["stack engine-cpu optimizer_bytes"].value == pytest.approx(20, rel=0.1)
    assert not fitted["stack engine-cpu vocabulary_efficiency"].determined
    return where / "out"
