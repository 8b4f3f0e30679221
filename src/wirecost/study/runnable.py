"""What this installation and machine can't run of a study, refused before anything is started."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial

from wirecost.errors import MissingExtraError, SpecError, UnsupportedError
from wirecost.launch.isolate import EXIT_REFUSED, Isolated
from wirecost.launch.processes import die_with_parent
from wirecost.spec import Device, Study


def check_runnable(study: Study) -> None:
    """Raises MissingExtraError, SpecError or UnsupportedError, naming what stands in the way."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("tokenizers") is None:
        raise MissingExtraError("training", "train")
    _check_trainable(study)
    from wirecost.corpus.text import read_text

    read_text(study.data.corpus)
    if study.device is Device.CUDA:
        _check_gpus(study)
    for number, network in enumerate(study.networks):
        if network.emulate is None and any(e.hosts > 1 for e in study.experiments() if e.network == network):
            raise SpecError(
                f"{study.name}: networks[{number}]: '{network.name}' is a native network, which this machine "
                "alone has with hosts: [1] only; give it an 'emulate' section to run several hosts here"
            )
    if any(f.emulate is not None for f in study.networks):
        _check_isolation()


def _check_trainable(study: Study) -> None:
    """Raises SpecError for what training doesn't do: a workload, a plan, both together, or an experiment."""
    from wirecost.train.checks import check_combination, check_experiment, check_plan, check_workload
    from wirecost.train.grid import rank_grid

    for key, entries, refusal in (
        ("workloads", study.workloads, check_workload),
        ("plans", study.plans, check_plan),
    ):
        for number, entry in enumerate(entries):
            if reason := refusal(entry):  # type: ignore[arg-type]
                raise SpecError(f"{study.name}: {key}[{number}]: {reason}")
    for workload in study.workloads:
        for plan in study.plans:
            if reason := check_combination(workload, plan):
                raise SpecError(f"{study.name}: {reason}")
    for experiment in study.experiments():
        rank_grid(experiment)  # raises where hosts cut a group apart
        if reason := check_experiment(experiment):
            raise SpecError(f"{study.name}: {reason}")


def _check_gpus(study: Study) -> None:
    have, least = gpus_here(), min(e.ranks for e in study.experiments())
    if have < least:
        raise UnsupportedError(f"{study.name}: {too_few_gpus(least, have)}; use fewer hosts, or device: cpu")


def too_few_gpus(ranks: int, gpus: int) -> str:
    """Every rank needs a GPU of its own: two that share one measure each other."""
    return f"device cuda needs a GPU for each rank: {ranks}, and PyTorch finds {gpus} here"


def gpus_here() -> int:
    """In another process: this one must not hold a GPU."""
    run = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    return int(run.stdout) if run.returncode == 0 and run.stdout.strip().isdigit() else 0


def _check_isolation() -> None:
    # Memory, not a file: whether a disk is full doesn't matter yet.
    with open(os.memfd_create("wirecost-isolation"), "w+b") as output:  # noqa: PTH123 - a descriptor, not a path
        with Isolated([sys.executable, "-c", ""], network=True, output=output) as trial:
            code = trial.wait(60)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if code == EXIT_REFUSED:
        raise UnsupportedError(text.splitlines()[-1])
    if code:
        raise UnsupportedError(f"a process in a namespace of its own ended with exit code {code}: {text[-300:]}")
