"""Loads studies by the name of a built-in study or by their YAML file."""

from __future__ import annotations

from pathlib import Path

from wirecost.errors import SpecError, deprecated, one_of
from wirecost.spec import Study, read_yaml, validate
from wirecost.spec.presets import named, names


def load_study(name_or_path: str) -> Study:
    """Returns the study of a file, or the built-in study of that name.

    Raises:
        SpecError: one line that names the file, the key and the allowed values.
    """
    if name_or_path in names("study"):
        return validate(Study, named("study", name_or_path), f"study {name_or_path}")
    path = Path(name_or_path)
    if not path.exists() and path.suffix not in {".yaml", ".yml"}:
        raise SpecError(f"{name_or_path}: no such file; {one_of('study', name_or_path, names('study'))}")
    data = read_yaml(path)
    workloads = data.get("workloads")
    if isinstance(workloads, list):
        data["workloads"] = [_with_config_of(path.parent, entry) for entry in workloads]
    return validate(Study, data, str(path))


def _with_config_of(folder: Path, workload: object) -> object:
    """Returns a study's workload with the path of a `config.json` resolved against the folder of the study's file.

    A path that exists only relative to the working directory is still accepted, with a deprecation warning.
    """
    if isinstance(workload, dict):
        return (
            {**workload, "config": _with_config_of(folder, workload["config"])}
            if "config" in workload
            else workload
        )
    if not isinstance(workload, str) or not workload.endswith(".json") or Path(workload).is_absolute():
        return workload
    in_study_folder = folder / workload
    if not in_study_folder.exists() and Path(workload).exists():
        deprecated(f"'{workload}' from the working directory", "its path from the folder of the study's file")
        return workload
    return str(in_study_folder)


PROFILED_ITERATIONS = 4
"""Iterations that `wirecost study run --profile` profiles: a replay leaves out the first, and checks each against
the others."""


def profiled(study: Study) -> Study:
    """Returns a study whose every experiment is profiled; one that profiles iterations already stays as it is."""
    if study.profile_iterations:
        return study
    return study.model_copy(update={"profile_iterations": PROFILED_ITERATIONS})
