"""A finished experiment as its directory holds it: how it ended, what came out, and whether it can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from wirecost.breakdown import Breakdown, OutOfMemory
from wirecost.errors import SpecError
from wirecost.spec import Experiment, parse_yaml, validate
from wirecost.spec.alike import AlikeSpecs
from wirecost.study.manifest import MANIFEST, SMALL_BYTES, CheckedFiles, DamageError
from wirecost.study.summary import Summary, summarise

STATUS, EXPERIMENT, BREAKDOWN = "status.json", "experiment.yaml", "breakdown.json"
FORMAT_VERSION = 2
"""Of `status.json`: since 2 a manifest lies beside it."""


class Status(StrEnum):
    DONE = "done"
    OOM = "oom"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(BaseModel):
    """How an experiment ended. `log_tail` holds the last lines of the log that tells most; `memory` is there when
    memory ran out."""

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
    """A finished experiment as the store holds it; `breakdown` is there when `outcome` is done."""

    experiment: Experiment
    outcome: Outcome
    breakdown: Breakdown | None
    directory: Path


@dataclass(frozen=True)
class Damaged:
    """What lies in a result's place and can't be used: damaged, another experiment's, or of a version that this
    one can't read. `reason` names the file."""

    directory: Path
    reason: str

    @property
    def name(self) -> str:
        return self.directory.name


@dataclass(frozen=True)
class ResultSummary:
    """A finished experiment by its breakdown's numbers; `summary` is there when `outcome` is done."""

    experiment: Experiment
    outcome: Outcome
    summary: Summary | None
    directory: Path


def read_result(directory: Path, name: str | None = None, *, every_byte: bool = False) -> Result:
    """Reads a finished experiment from a directory that holds it and nothing of another.

    Results of versions that wrote no manifest are recognised by the names that experiment and breakdown carry.

    Args:
        name: the experiment's slug; None takes the directory's word for it.
        every_byte: hold all files against the manifest's SHA-256. Otherwise those longer than `SMALL_BYTES` that
            aren't read here are held against its sizes alone.

    Raises:
        DamageError: naming the file, relative to the directory.
    """
    files = CheckedFiles(directory, name)
    outcome = _outcome(files)
    experiment = _experiment(files, lambda text: validate(Experiment, parse_yaml(text, EXPERIMENT), EXPERIMENT))
    breakdown = files.parse(BREAKDOWN, Breakdown) if outcome.status is Status.DONE else None
    _check_identity(files, name, experiment, breakdown.title if breakdown else None)
    files.check_contents(None if every_byte else SMALL_BYTES)
    return Result(experiment, outcome, breakdown, directory)


class SummaryReader:
    """Reads many results of one study as summaries: what their experiments have in common is parsed once."""

    def __init__(self) -> None:
        self._experiments = AlikeSpecs(Experiment)

    def read(self, directory: Path, name: str) -> ResultSummary:
        """Reads one result as `read_result` does, but for its samples.

        Raises:
            DamageError: naming the file, relative to the directory.
        """
        files = CheckedFiles(directory, name)
        outcome = _outcome(files)
        experiment = _experiment(files, lambda text: self._experiments.parse(text, EXPERIMENT))
        summary = files.convert(BREAKDOWN, summarise) if outcome.status is Status.DONE else None
        _check_identity(files, name, experiment, summary.title if summary else None)
        files.check_contents(SMALL_BYTES)
        return ResultSummary(experiment, outcome, summary, directory)


def _outcome(files: CheckedFiles) -> Outcome:
    outcome = files.parse(STATUS, Outcome)
    if files.manifest is None and outcome.format_version >= FORMAT_VERSION:
        raise DamageError(f"{MANIFEST} is missing")
    return outcome


def _experiment(files: CheckedFiles, parse: Callable[[str], Experiment]) -> Experiment:
    try:
        return parse(files.read(EXPERIMENT).decode())
    except UnicodeDecodeError as error:
        raise DamageError(f"{EXPERIMENT} is not UTF-8 text") from error
    except SpecError as error:
        raise DamageError(f"{error} (written by another version?)") from error


def _check_identity(files: CheckedFiles, name: str | None, experiment: Experiment, title: str | None) -> None:
    """Raises DamageError if a result without a manifest is of another experiment by its own names.

    Args:
        title: the breakdown's, None where there is none.
    """
    if files.manifest is not None:
        return
    if experiment.slug != (name or experiment.slug):
        raise DamageError(f"{EXPERIMENT} is of another experiment ({experiment.slug}), or of another version")
    if title is not None and title != experiment.slug:
        raise DamageError(f"{BREAKDOWN} is of another experiment ({title[:200]})")
