"""One-rank runs, and the folder that is calibrated on them: made once, only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.calibration import bench, experiment, keep, measured
from wirecost.calibration.assemble import calibrate, write
from wirecost.calibration.sources import Told, gather


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
    made = calibrate(gather([store, *files], Told()))
    write(made, where / "out")
    (fit,) = made.devices
    assert max(map(abs, fit.errors)) < 0.06
    assert fit.held_out is not None
    assert max(map(abs, fit.held_out)) < 0.1
    told = {one.name: one for one in fit.told}
    assert told["gpu peak_flops"].value == pytest.approx(70e9, rel=0.2)
    assert told["stack optimizer_bytes"].value == pytest.approx(20, rel=0.1)
    assert not told["stack vocabulary_efficiency"].told
    return where / "out"
