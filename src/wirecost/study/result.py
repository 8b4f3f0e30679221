"""Reads and checks a finished experiment from its directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from wirecost.breakdown import Breakdown, OutOfMemory
from wirecost.errors import SpecError
from wirecost.spec import AnyExperiment, Experiment, JobExperiment, parse_yaml, validate
from wirecost.spec.alike import AlikeSpecs
from wirecost.study.manifest import MANIFEST, SMALL_BYTES, CheckedFiles, DamageError
from wirecost.study.summary import Summary, summarise

STATUS, EXPERIMENT, BREAKDOWN = "status.json", "experiment.yaml", "breakdown.json"
FORMAT_VERSION = 2
"""Format version of `status.json`. Since version 2 the directory also has a manifest."""


class Status(StrEnum):
    DONE = "done"
    OOM = "oom"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(BaseModel):
    """How an experiment ended. `log_tail` holds the last lines of the most informative log; `memory` is set if
    memory ran out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1, 2] = 1
    status: Status
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None
    log_tail: tuple[str, ...] = ()
    seconds: float | None = None
    memory: OutOfMemory | None = None


@dataclass(frozen=True)
class Result:
    """A stored finished experiment; `breakdown` is set if `outcome` is done."""

    experiment: AnyExperiment
    outcome: Outcome
    breakdown: Breakdown | None
    directory: Path


@dataclass(frozen=True)
class Damaged:
    """An entry in the place of a result that can't be used: it is damaged, belongs to another experiment, or has
    an unsupported version. `reason` names the file.
    """

    directory: Path
    reason: str

    @property
    def name(self) -> str:
        return self.directory.name


@dataclass(frozen=True)
class ResultSummary:
    """A finished experiment with a summary of its breakdown; `summary` is set if `outcome` is done."""

    experiment: AnyExperiment
    outcome: Outcome
    summary: Summary | None
    directory: Path


def read_result(directory: Path, name: str | None = None, *, every_byte: bool = False) -> Result:
    """Reads a finished experiment from its directory.

    Results of versions without a manifest are identified by the names in their experiment and breakdown.

    Args:
        name: the expected slug of the experiment; None accepts any.
        every_byte: check all files against the manifest's SHA-256. Otherwise files that are longer than
            `SMALL_BYTES` and not read here are only checked against its sizes.

    Raises:
        DamageError: naming the file, relative to the directory.
    """
    files = CheckedFiles(directory, name)
    outcome = _outcome(files)
    experiment = _experiment(files, parse_experiment)
    breakdown = files.parse(BREAKDOWN, Breakdown) if outcome.status is Status.DONE else None
    _check_identity(files, name, experiment, breakdown.title if breakdown else None)
    files.check_contents(None if every_byte else SMALL_BYTES)
    return Result(experiment, outcome, breakdown, directory)


class SummaryReader:
    """Reads many results of one study as summaries. Parts that their experiments share are parsed once."""

    def __init__(self) -> None:
        self._experiments = AlikeSpecs(Experiment)
        self._jobs = AlikeSpecs(JobExperiment)

    def read(self, directory: Path, name: str) -> ResultSummary:
        """Reads one result like `read_result`, but without its samples.

        Raises:
            DamageError: naming the file, relative to the directory.
        """
        files = CheckedFiles(directory, name)
        outcome = _outcome(files)
        experiment = _experiment(files, self._parse)
        summary = files.convert(BREAKDOWN, summarise) if outcome.status is Status.DONE else None
        _check_identity(files, name, experiment, summary.title if summary else None)
        files.check_contents(SMALL_BYTES)
        return ResultSummary(experiment, outcome, summary, directory)

    def _parse(self, text: str) -> AnyExperiment:
        kind = self._jobs if _is_job(text) else self._experiments
        return kind.parse(text, EXPERIMENT)


def parse_experiment(text: str, where: str = EXPERIMENT) -> AnyExperiment:
    """Returns the experiment that the text of an `experiment.yaml` describes.

    Raises:
        SpecError: if it describes none.
    """
    return validate(JobExperiment if _is_job(text) else Experiment, parse_yaml(text, where), where)


def _is_job(text: str) -> bool:
    """Returns whether an experiment's YAML is that of a command: it has the key `job`."""
    return re.search(r"^job:", text, re.MULTILINE) is not None


def _outcome(files: CheckedFiles) -> Outcome:
    outcome = files.parse(STATUS, Outcome)
    if files.manifest is None and outcome.format_version >= FORMAT_VERSION:
        raise DamageError(f"{MANIFEST} is missing")
    return outcome


def _experiment(files: CheckedFiles, parse: Callable[[str], AnyExperiment]) -> AnyExperiment:
    try:
        return parse(files.read(EXPERIMENT).decode())
    except UnicodeDecodeError as error:
        raise DamageError(f"{EXPERIMENT} is not UTF-8 text") from error
    except SpecError as error:
        raise DamageError(f"{error} (written by another version?)") from error


def _check_identity(files: CheckedFiles, name: str | None, experiment: AnyExperiment, title: str | None) -> None:
    """Raises DamageError if the names in a result without a manifest are those of another experiment.

    Args:
        title: the breakdown's title; None without a breakdown.
    """
    if files.manifest is not None:
        return
    if experiment.slug != (name or experiment.slug):
        raise DamageError(f"{EXPERIMENT} is of another experiment ({experiment.slug}), or of another version")
    if title is not None and title != experiment.slug:
        raise DamageError(f"{BREAKDOWN} is of another experiment ({title[:200]})")
