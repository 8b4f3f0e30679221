"""Recognises inputs of `wirecost calibrate` that are no measurements, and says what to give instead."""

from __future__ import annotations

from pathlib import Path

from wirecost.errors import SpecError
from wirecost.reading import open_file
from wirecost.spec.yaml import read_yaml

STUDY_FOLDER = "the folder that `wirecost study run STUDY.yaml --out FOLDER` wrote"
EXPECTED = (
    f"a study's results ({STUDY_FOLDER}), an experiment's directory, a result of `wirecost bench --format json`, "
    "a trace, a breakdown or a CSV table"
)
CALIBRATION = (
    "is a calibration, the result of `wirecost calibrate`: give the measurements; `wirecost predict "
    "--calibration` takes it"
)
_CALIBRATIONS = ("calibration.yaml", "stack-*.yaml", "cluster-*.yaml")
_KEYS_OF_CALIBRATION = ({"values", "format_version"}, {"values", "calibrated_on"})
_KEYS_OF_STUDY = {"workloads", "plans", "networks", "scaling"}
_HEAD_BYTES = 256
_NO_TEXT = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""First bytes of compressed files, databases and texts with a byte order mark. Reading them says what they are."""


def refuse_mistaken(path: Path) -> None:
    """Refuses a file or folder that is recognisably something other than a measurement.

    Raises:
        SpecError: says what it is and what to give.
    """
    if path.is_dir():
        _refuse_folder(path)
    elif path.suffix.lower() in (".yaml", ".yml"):
        _refuse_yaml(path)
    elif path.is_file() and not _may_be_trace(path):
        raise SpecError(f"{path}: is no measurement: expected {EXPECTED}")


def _refuse_folder(folder: Path) -> None:
    if any(any(folder.glob(pattern)) for pattern in _CALIBRATIONS):
        raise SpecError(f"{folder}: {CALIBRATION}")
    if (folder / "study.yaml").is_file():
        raise SpecError(f"{folder}: {no_finished_run(folder)}")
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise SpecError(f"{folder}: can't be read: {error.strerror}") from error
    if not inside:
        raise SpecError(f"{folder}: is empty: expected {EXPECTED}")
    if any((path / "experiment.yaml").is_file() for path in inside):
        raise SpecError(
            f"{folder}: holds experiments: give the study's folder above it, or one experiment's directory"
        )
    if studies := [path.name for path in inside if (path / "experiments").is_dir()]:
        names = ", ".join(studies[:5]) + (" ..." if len(studies) > 5 else "")
        raise SpecError(f"{folder}: holds the results of studies: give one of them: {names}")


def no_finished_run(folder: Path) -> str:
    """Returns that a study's folder has no finished run, and how to get one."""
    return (
        "the study has no finished run: `wirecost study run STUDY.yaml --resume --out "
        f"{folder}` runs what is missing"
    )


def _refuse_yaml(path: Path) -> None:
    keys = read_yaml(path).keys()
    if any(own <= keys for own in _KEYS_OF_CALIBRATION):
        raise SpecError(f"{path}: {CALIBRATION}")
    if len(_KEYS_OF_STUDY & keys) > 1:
        raise SpecError(f"{path}: is a study, not its results: give {STUDY_FOLDER}")
    raise SpecError(f"{path}: is a specification, not a measurement: expected {EXPECTED}")


def _may_be_trace(path: Path) -> bool:
    with open_file(path, pipes=False) as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_NO_TEXT) or head.lstrip()[:1] in (b"{", b"[", b"")
