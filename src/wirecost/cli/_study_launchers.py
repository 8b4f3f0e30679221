"""What the launchers of `wirecost study run` need besides a process of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from wirecost.launch.machines import Machines
    from wirecost.spec import Study
    from wirecost.study import Again
    from wirecost.study.allocation import Allocation, OnMachines
    from wirecost.study.slurm import SlurmOptions

LAUNCHERS = ("local", "slurm", "srun", "hosts", "kubernetes")


def place_of(
    launcher: str, shape: str | None, on: str | None, remote: str | None
) -> Allocation | OnMachines | None:
    """Returns where the ranks are started; None for this machine.

    Raises:
        SpecError: if the options don't go together.
    """
    from wirecost.study.allocation import OnMachines

    allocation, machines = _allocation(launcher, shape), _machines(launcher, on, remote)
    return allocation if machines is None else OnMachines(machines, allocation)


def _allocation(launcher: str, shape: str | None) -> Allocation | None:
    """Returns the allocation that the ranks are started on; None for this machine."""
    from wirecost.errors import SpecError, one_of
    from wirecost.study.allocation import Allocation

    if launcher not in LAUNCHERS:
        raise SpecError(f"--launcher: {one_of('launcher', launcher, LAUNCHERS)}")
    if (launcher not in ("srun", "hosts") and shape is not None) or (launcher == "srun" and shape is None):
        raise SpecError("--launcher srun and --shape 2x8 go together: a job runs the experiments of one shape")
    if shape is None:
        return None
    if launcher == "srun" and "SLURM_JOB_ID" not in os.environ:
        raise SpecError("--launcher srun: needs an allocation of Slurm; --launcher slurm submits a job")
    try:
        return Allocation.named(shape)
    except ValueError as error:
        raise SpecError(f"--shape: {error}") from error


def write_for_kubernetes(
    study: Study,
    folder: Path,
    image: str | None,
    claim: str | None,
    more: tuple[str | None, str | None, str | None],
) -> None:
    """Writes the manifests of a study and prints their paths.

    Args:
        image: image of the pods.
        claim: PersistentVolumeClaim of the results.
        more: namespace, processor cores and memory of a pod.

    Raises:
        SpecError: if an option is missing or none that Kubernetes takes.
    """
    from wirecost.errors import SpecError
    from wirecost.study.kubernetes import KubernetesOptions, write_manifests

    if image is None or claim is None:
        raise SpecError("--launcher kubernetes: needs --container-image and --volume-claim")
    for written in write_manifests(study, folder, KubernetesOptions(image, claim, *more)):
        typer.echo(f"{written.path}: {written.experiments} experiments of {written.shape}")
    typer.echo(f"nothing was started: kubectl apply -f {quote(str(folder / 'kubernetes'))}")


def _machines(launcher: str, on: str | None, remote: str | None) -> Machines | None:
    """Returns the machines that the user names; None for another launcher."""
    from wirecost.errors import SpecError
    from wirecost.launch.machines import Machines

    if launcher != "hosts":
        if on is not None or remote is not None:
            raise SpecError("--on and --remote go with --launcher hosts")
        return None
    if on is None:
        raise SpecError("--launcher hosts: needs --on, as --on node1,node2")
    return Machines.parse(on, remote)


def submit_to_slurm(study: Study, folder: Path, options: SlurmOptions, again: Again) -> None:
    """Submits a study to Slurm and prints its jobs."""
    from wirecost.study.slurm import submit

    wanted = (("--retry-failed", again.failed), ("--repair", again.damaged))
    jobs = submit(study, folder, options, [option for option, is_wanted in wanted if is_wanted])
    for job in jobs:
        typer.echo(f"job {job.number}: {job.experiments} experiments of {job.shape}")
    place = quote(str(folder))
    if not jobs:
        typer.echo(f"every experiment is finished: wirecost report {place}")
    else:
        typer.echo(f"wirecost study status {place} shows what runs; wirecost study cancel {place} ends it")
