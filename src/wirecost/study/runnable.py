"""Checks that this installation and machine can run a study, before anything is started."""

from __future__ import annotations

import difflib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from wirecost.errors import MissingExtraError, SpecError, UnsupportedError
from wirecost.launch.isolate import EXIT_REFUSED, Isolated
from wirecost.launch.processes import die_with_parent
from wirecost.process_limits import raise_open_files
from wirecost.spec import Device, Experiment, Job, Study
from wirecost.spec.launcher import lacks_script, script_of
from wirecost.spec.megatron import settings_of
from wirecost.study.allocation import Allocation

WANTED_FILES = 4096
"""Number of open files up to which a run raises its own limit."""
FILES, FILES_OF_A_RANK = 64, 8
"""Open files that a process needs at least, and further ones for each rank, to which it may be connected."""


def check_runnable(study: Study) -> None:
    """Raises MissingExtraError, SpecError or UnsupportedError, naming what stands in the way."""
    _check_training_installed(study)
    check_study(study)
    checks = (_check_scripts, _check_gpus, _check_megatron, _check_networks, _check_open_files, _check_isolation)
    for check in checks:
        check(study)


def _check_open_files(study: Study) -> None:
    ranks = max((e.ranks for e in (*study.job_experiments(), *all_models(study))), default=1)
    raise_open_files(WANTED_FILES, FILES + FILES_OF_A_RANK * ranks)


def check_installed(study: Study) -> None:
    """Raises MissingExtraError or SpecError if this installation, or any machine, can't train the study."""
    _check_training_installed(study)
    check_study(study)


def check_on_machines(study: Study, machines: int, allocation: Allocation | None) -> None:
    """Raises MissingExtraError, SpecError or UnsupportedError if a study can't run on a number of machines.

    Args:
        allocation: the shape of the experiments that run. None is all of them.
    """
    _check_training_installed(study)
    check_study(study)
    experiments = (*study.job_experiments(), *all_models(study))
    native = [e.hosts for e in experiments if e.network.emulate is None]
    most = max(native, default=0) if allocation is None else allocation.nodes
    if most > machines:
        raise SpecError(f"{study.name}: hosts: {most}, and --on names {machines}")
    _check_isolation(study)


def limits_here(study: Study) -> list[str]:
    """Returns a line for each reason for which this machine can't run a study, or a part of it.

    Raises:
        MissingExtraError, SpecError: if the study can't be trained anywhere, or this can't be checked here.
    """
    _check_training_installed(study)
    check_study(study)
    limits: list[str] = []
    for check in (_check_scripts, _check_gpus, _check_megatron, _check_networks, _check_isolation):
        try:
            check(study)
        except (SpecError, UnsupportedError) as error:
            limits.append(str(error))
    if study.device is Device.CUDA and not limits:
        have = gpus_here()
        if more := sum(e.ranks > have for e in all_models(study)):
            limits.append(f"{more} experiments need more than the {have} GPUs that PyTorch finds here")
    return limits


def _check_training_installed(study: Study) -> None:
    if not study.models:
        return
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("tokenizers") is None:
        raise MissingExtraError("training", "train")


def check_study(study: Study) -> None:
    """Raises SpecError if a workload, a plan or an experiment of a study can't be trained on any machine."""
    from wirecost.train.checks import check_combination, check_experiment, check_plan, check_workload

    for key, entries, refusal in (
        ("workloads", study.workloads, check_workload),
        ("plans", study.plans, check_plan),
    ):
        for number, entry in enumerate(entries):
            if not isinstance(entry, Job) and (reason := refusal(entry)):  # type: ignore[arg-type]
                raise SpecError(f"{study.name}: {key}[{number}]: {reason}")
    for workload in study.models:
        for plan in study.plans:
            if reason := check_combination(workload, plan):
                raise SpecError(f"{study.name}: {reason}")
    for experiment in all_models(study):
        if reason := check_experiment(experiment):
            raise SpecError(f"{study.name}: {reason}")
    for job in study.jobs:
        if shutil.which(job.arguments[0]) is None:
            raise SpecError(
                f"{study.name}: workload '{job.name}': there is no program {job.arguments[0]!r} to start"
                f"{_instead(job.arguments)}"
            )
        if lacks_script(job.arguments):
            command = shlex.join(job.arguments)[:200]
            script = "train.sh" if command.partition(" ")[0].endswith("sh") else "train.py"
            raise SpecError(
                f"{study.name}: workload '{job.name}': '{command}' has no script, so it would read standard "
                f"input; write it as: {command} {script}"
            )
    if not study.models:
        return
    _check_corpus(study)


def _instead(arguments: Sequence[str]) -> str:
    """Returns what would be right in the place of a command that can't be started; empty if that isn't known."""
    program = arguments[0]
    if Path(program).is_file():
        with_program = {".py": "python", ".sh": "bash"}.get(Path(program).suffix)
        instead = f"; start it as: {with_program} {shlex.quote(program)}" if with_program else ""
        return f": the file isn't executable{instead}"
    if len(arguments) == 1 and shutil.which((program.split() or [""])[0]) is not None:
        return f": write the command without quotes, as in: -- {program}"
    return ""


def _check_scripts(study: Study) -> None:
    """Raises SpecError if a command runs a script that isn't there."""
    for job in study.jobs:
        script = script_of(job.arguments)
        if script is None or Path(script).exists():
            continue
        folder = Path(script).parent
        others = [path.name for path in folder.glob(f"*{Path(script).suffix}")] if folder.is_dir() else []
        near = difflib.get_close_matches(Path(script).name, others, n=1)
        hint = f"; did you mean {str(folder / near[0])!r}?" if near else f" in {Path.cwd()}"
        raise SpecError(f"{study.name}: workload '{job.name}': there is no script {script!r}{hint}")


def _check_corpus(study: Study) -> None:
    """Raises SpecError if a study's text can't be read, or doesn't fit a workload."""
    from wirecost.corpus import is_prepared, load_windows
    from wirecost.corpus.text import read_text
    from wirecost.train.checks import check_vocabulary
    from wirecost.train.texts import text_length

    corpus = study.data.corpus
    if not is_prepared(corpus):
        read_text(corpus)
        return
    try:
        longest = max(text_length(workload) for workload in study.models)
        vocabulary = load_windows(Path(corpus), longest, know_size=True).corpus.vocabulary
    except SpecError as error:
        raise SpecError(f"{study.name}: data.corpus: {error}") from error
    for workload in study.models:
        if reason := check_vocabulary(workload, vocabulary):
            raise SpecError(f"{study.name}: data.corpus: {corpus}: {reason}")


def all_models(study: Study) -> list[Experiment]:
    """Returns the experiments of models, with the smallest one of each search for the largest batch."""
    return [*study.model_experiments(), *(e for search in study.batch_searches() for e in search.smallest)]


def _check_networks(study: Study) -> None:
    for number, network in enumerate(study.networks):
        if network.emulate is None and any(
            e.hosts > 1 for e in (*study.job_experiments(), *all_models(study)) if e.network == network
        ):
            raise SpecError(
                f"{study.name}: networks[{number}]: '{network.name}' is a native network, which this machine "
                "alone has with hosts: [1] only; give it an 'emulate' section to run several hosts here"
            )


def _check_gpus(study: Study) -> None:
    if study.device is not Device.CUDA:
        return
    have, least = gpus_here(), min((e.ranks for e in all_models(study)), default=0)
    if have < least:
        raise UnsupportedError(f"{study.name}: {too_few_gpus(least, have)}; use fewer hosts, or device: cpu")


def _check_megatron(study: Study) -> None:
    """Refuses models for Megatron-Core where it isn't installed, or has too few GPUs."""
    for experiment in study.job_experiments():
        settings = settings_of(experiment.job)
        if settings is None:
            continue
        if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.core") is None:
            raise MissingExtraError("engine megatron", "megatron")
        parallel = settings.plan.model_parallel
        if experiment.ranks % parallel:
            raise SpecError(
                f"{study.name}: workload '{settings.name}': {experiment.ranks} ranks are not a multiple of plan "
                f"'{settings.plan.name}'s {parallel}"
            )
        if (have := gpus_here()) < experiment.ranks:
            raise UnsupportedError(
                f"{study.name}: workload '{settings.name}': engine megatron needs a GPU for each rank: "
                f"{experiment.ranks}, and PyTorch finds {have} here; it does not train on CPUs"
            )


def too_few_gpus(ranks: int, gpus: int) -> str:
    """Returns the error text for too few GPUs. Every rank needs its own GPU, because two ranks on one disturb each
    other.
    """
    return f"device cuda needs a GPU for each rank: {ranks}, and PyTorch finds {gpus} here"


def gpus_here() -> int:
    """Returns the number of GPUs, counted in another process because this one must not open a GPU."""
    text = _printed_by_torch("len(devices)")
    return int(text) if text.isdigit() else 0


def gpu_memory_bytes() -> int | None:
    """Returns the memory of this machine's smallest GPU, read in another process; None without a GPU."""
    text = _printed_by_torch("min(torch.cuda.get_device_properties(n).total_memory for n in devices)")
    return int(text) if text.isdigit() else None


def _printed_by_torch(expression: str) -> str:
    """Returns what an expression over PyTorch and its `devices` gives, as text. It is empty if it fails."""
    run = subprocess.run(
        [sys.executable, "-c", f"import torch; devices = range(torch.cuda.device_count()); print({expression})"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    return run.stdout.strip() if run.returncode == 0 else ""


def _check_isolation(study: Study) -> None:
    if all(network.emulate is None for network in study.networks):
        return
    # Memory, not a file: whether a disk is full doesn't matter yet.
    with open(os.memfd_create("wirecost-isolation"), "w+b") as output:  # noqa: PTH123 - a descriptor, not a path
        with Isolated([sys.executable, "-c", ""], network=True, output=output) as trial:
            code = trial.wait(60)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if code == EXIT_REFUSED:
        raise UnsupportedError(text.splitlines()[-1])
    if code:
        reason = f": {text[-300:]}" if text else ""
        raise UnsupportedError(f"a process in a namespace of its own ended with exit code {code}{reason}")
