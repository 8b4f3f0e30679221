"""Jobs: training commands that are started unchanged, and one run of such a command as an experiment."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from wirecost.spec.base import Spec
from wirecost.spec.experiment import MAX_EMULATED_HOSTS, Experiment, ProfileIterations, Timeout, with_repeat
from wirecost.spec.network import Network
from wirecost.units import Seconds

MOST_ARGUMENTS = 4096
LONGEST_REGEX = 1000
JOB_ITERATIONS = 20
JOB_WARMUP = 5
JOB_PROFILE_ITERATIONS = 3
"""Default numbers of iterations of a command: measured, before them, and under the profiler after them."""


def _arguments(value: object) -> object:
    """Splits a command in one text as a POSIX shell does."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"can't be split into arguments: {error}") from error
    return value


Command = Annotated[str | tuple[str, ...], BeforeValidator(_arguments)]
"""A command and its arguments. One text is split as by a shell, so that a valid command is a tuple."""


class Job(Spec):
    """A training command that is started unchanged, as a workload of a study.

    Attributes:
        name: name of the workload in tables and directories.
        command: command and arguments, as a list or as one text.
        iteration_regex: regular expression of the lines of output that end an iteration, for jobs that don't use
            PyTorch. None takes the optimizer's steps.
    """

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    command: Command
    iteration_regex: str | None = Field(default=None, min_length=1, max_length=LONGEST_REGEX)

    @field_validator("iteration_regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"is no regular expression: {error}") from error
        return pattern

    @field_validator("command")
    @classmethod
    def _can_be_started(cls, command: str | tuple[str, ...]) -> tuple[str, ...]:
        if not command or not command[0] or any("\0" in argument for argument in command):
            raise ValueError("names no program, or has a null character")
        if len(command) > MOST_ARGUMENTS:
            raise ValueError(f"has {len(command)} arguments; at most {MOST_ARGUMENTS} are possible")
        return tuple(command)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The program and its arguments."""
        assert isinstance(self.command, tuple)
        return self.command


class JobExperiment(Spec):
    """One run of a command on hosts that a network connects.

    Attributes:
        job: command that is started.
        network: network between the hosts.
        hosts: number of hosts.
        ranks_per_host: number of processes that are started on each host, or that a launcher starts there.
        iterations: number of measured iterations.
        warmup: number of iterations before the measured ones.
        profile_iterations: number of iterations under torch.profiler after the measured ones.
        timeout: longest time that the run may take.
        repeat: number of this run, from 1.
    """

    job: Job
    network: Network
    hosts: PositiveInt
    ranks_per_host: PositiveInt = 1
    iterations: PositiveInt = JOB_ITERATIONS
    warmup: NonNegativeInt = JOB_WARMUP
    profile_iterations: ProfileIterations = JOB_PROFILE_ITERATIONS
    timeout: Timeout = Seconds(600)
    repeat: PositiveInt = 1

    @model_validator(mode="after")
    def _fits(self) -> JobExperiment:
        if self.network.emulate is not None and self.hosts > MAX_EMULATED_HOSTS:
            raise ValueError(f"hosts: {self.hosts} emulated hosts can't exist; at most {MAX_EMULATED_HOSTS} do")
        return self

    @property
    def ranks(self) -> int:
        """Number of processes that are started on all hosts together. A job may start further ranks itself."""
        return self.hosts * self.ranks_per_host

    @cached_property
    def digest(self) -> str:
        """The first 10 hexadecimal digits of the SHA-256 of the experiment's canonical JSON."""
        content: Any = self.model_dump(mode="json", exclude={"repeat"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def slug(self) -> str:
        """A readable directory name that is unique to this run of the experiment."""
        return with_repeat(self.common_slug, self.repeat)

    @cached_property
    def common_slug(self) -> str:
        """A readable name that all repeats of the experiment share."""
        readable = "_".join([self.job.name, self.network.name, f"{self.hosts}x{self.ranks_per_host}"])
        return f"{re.sub(r'[^A-Za-z0-9._+-]', '-', readable)}_{self.digest}"


AnyExperiment = Experiment | JobExperiment
"""An experiment of a study: a model that wirecost trains, or a command."""


def workload_name(experiment: AnyExperiment) -> str:
    """Returns the name of an experiment's workload."""
    return experiment.job.name if isinstance(experiment, JobExperiment) else experiment.workload.name


OWN_PLAN = "as written"
"""Stands for the plan of a command, which wirecost doesn't know."""


def plan_name(experiment: AnyExperiment) -> str:
    """Returns the name of an experiment's plan, or `OWN_PLAN`."""
    return OWN_PLAN if isinstance(experiment, JobExperiment) else experiment.plan.name
