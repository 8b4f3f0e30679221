"""What a rank does beside training."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.studies import faulty_worker, only, write_study
from wirecost.spec import Study, load
from wirecost.study import Status, run_study

pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_root, pytest.mark.slow]


def test_libraries_and_model_are_no_matter_of_garbage_collection(tmp_path: Path) -> None:
    body = """\
import gc
original = loop.train
def train(*arguments, **options):
    for done in original(*arguments, **options):
        kept, looked_at = gc.get_freeze_count(), len(gc.get_objects())
        assert looked_at < kept / 5, f"{looked_at} objects are looked at, {kept} are not"
        yield done
loop.train = train
"""
    study = load(Study, write_study(tmp_path))
    result = only(run_study(study, tmp_path / "out", worker=faulty_worker(tmp_path, body)))
    assert result.outcome.status is Status.DONE, result.outcome
