"""The options of `--launcher`, which `wirecost study run` and `wirecost run` share, and what they do."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirecost.launch.machines import Machines
    from wirecost.spec import Study
    from wirecost.study.allocation import Allocation, OnMachines

LAUNCHERS = ("local", "slurm", "srun", "hosts", "kubernetes")

LAUNCHER = Annotated[
    str,
    typer.Option(
        help="local: this machine. slurm: submit jobs. srun: in a job's allocation. hosts: torchrun on --on. "
        "kubernetes: write manifests."
    ),
]
ON = Annotated[
    str | None,
    typer.Option(metavar="HOST,HOST...", help="With hosts: the machines, as node1,node2 or node1=192.0.2.1,..."),
]
REMOTE = Annotated[
    str | None,
    typer.Option(help="With hosts: the command that runs another one on {host}.  [default: ssh {host}]"),
]
PARTITION = Annotated[str | None, typer.Option(help="With slurm: partition of the jobs.")]
ACCOUNT = Annotated[str | None, typer.Option(help="With slurm: account of the jobs.")]
TIME_LIMIT = Annotated[str | None, typer.Option(help="With slurm: time limit of a job, as 2:00:00.")]
CONSTRAINT = Annotated[str | None, typer.Option(help="With slurm: required features of the nodes.")]
SBATCH = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="With slurm: another option of sbatch.")
]
CONTAINER_IMAGE = Annotated[
    str | None, typer.Option(help="With slurm (srun of the pyxis plugin) or kubernetes: image of the ranks.")
]
VOLUME_CLAIM = Annotated[str | None, typer.Option(help="With kubernetes: PersistentVolumeClaim for the results.")]
NAMESPACE = Annotated[str | None, typer.Option(help="With kubernetes: namespace of the jobs.")]
POD_CPUS = Annotated[str | None, typer.Option(help="With kubernetes: processor cores of a pod.")]
POD_MEMORY = Annotated[str | None, typer.Option(help="With kubernetes: memory of a pod, as 64Gi.")]
MANIFEST = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="With kubernetes: jobset, or trainjob (Kubeflow Trainer).  [default: jobset]"
    ),
]

_OF_LAUNCHERS = {
    "on": ("hosts",),
    "remote": ("hosts",),
    "partition": ("slurm",),
    "account": ("slurm",),
    "time_limit": ("slurm",),
    "constraint": ("slurm",),
    "sbatch": ("slurm",),
    "parallel": ("slurm",),
    "container_image": ("slurm", "kubernetes"),
    "volume_claim": ("kubernetes",),
    "namespace": ("kubernetes",),
    "pod_cpus": ("kubernetes",),
    "pod_memory": ("kubernetes",),
    "manifest": ("kubernetes",),
}
"""The launchers that an option is for."""


@dataclass(frozen=True)
class Launching:
    """The launcher, and its options as the user gave them; None or empty is not given."""

    launcher: str = "local"
    on: str | None = None
    remote: str | None = None
    partition: str | None = None
    account: str | None = None
    time_limit: str | None = None
    constraint: str | None = None
    sbatch: tuple[str, ...] = ()
    parallel: int | None = None
    container_image: str | None = None
    volume_claim: str | None = None
    namespace: str | None = None
    pod_cpus: str | None = None
    pod_memory: str | None = None
    manifest: str | None = None

    def check(self) -> None:
        """Raises SpecError for an unknown launcher, and for options of another one."""
        from wirecost.errors import SpecError, one_of

        if self.launcher not in LAUNCHERS:
            raise SpecError(f"--launcher: {one_of('launcher', self.launcher, LAUNCHERS)}")
        for field in fields(self):
            launchers = _OF_LAUNCHERS.get(field.name)
            if launchers and getattr(self, field.name) not in (None, ()) and self.launcher not in launchers:
                name = f"--{field.name.replace('_', '-')}"
                raise SpecError(f"{name} goes with --launcher {' or '.join(launchers)}")

    @property
    def submits(self) -> bool:
        """Whether the command returns before anything has run."""
        return self.launcher in ("slurm", "kubernetes")

    def submit(self, study: Study, folder: Path, run_options: Sequence[str] = ()) -> bool:
        """Submits jobs to Slurm or writes manifests, and prints which. Returns whether anything is left to run.

        Args:
            folder: directory of the results.
            run_options: further options of `wirecost study run` in jobs of Slurm, as `--retry-failed`.
        """
        if self.launcher == "slurm":
            return _submit_to_slurm(self, study, folder, run_options)
        if run_options:
            from wirecost.errors import SpecError

            raise SpecError(f"{run_options[0]}: a manifest runs what has no result yet, and replaces none")
        _write_for_kubernetes(self, study, folder)
        return True


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


def _write_for_kubernetes(given: Launching, study: Study, folder: Path) -> None:
    """Writes the manifests of a study and prints their paths.

    Raises:
        SpecError: if an option is missing or none that Kubernetes takes.
    """
    from wirecost.errors import SpecError
    from wirecost.study.kubernetes import KubernetesOptions, write_manifests

    if given.container_image is None or given.volume_claim is None:
        raise SpecError("--launcher kubernetes: needs --container-image and --volume-claim")
    options = KubernetesOptions(
        given.container_image,
        given.volume_claim,
        given.namespace,
        given.pod_cpus,
        given.pod_memory,
        given.manifest or "jobset",
    )
    for written in write_manifests(study, folder, options):
        typer.echo(f"{written.path}: {_count(written.experiments)} of {written.shape}")
    typer.echo(f"nothing was started: kubectl apply -f {quote(str(folder / 'kubernetes'))}")


def _count(experiments: int) -> str:
    return f"{experiments} experiment{'s' * (experiments != 1)}"


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


def _submit_to_slurm(given: Launching, study: Study, folder: Path, run_options: Sequence[str]) -> bool:
    """Submits a study to Slurm and prints its jobs. Returns whether anything is left to run."""
    from wirecost.study.slurm import SlurmOptions, submit

    options = SlurmOptions(
        given.partition,
        given.account,
        given.time_limit,
        given.constraint,
        given.container_image,
        given.parallel or 1,
        given.sbatch,
    )
    jobs = submit(study, folder, options, run_options)
    for job in jobs:
        typer.echo(f"job {job.number}: {_count(job.experiments)} of {job.shape}")
    if jobs:
        place = quote(str(folder))
        typer.echo(f"wirecost study status {place} shows what runs; wirecost study cancel {place} ends it")
    return bool(jobs)
