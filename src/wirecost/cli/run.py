"""`wirecost run`: any training command, unchanged, over one network after another."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli._launchers import (
    ACCOUNT,
    CONSTRAINT,
    CONTAINER_IMAGE,
    LAUNCHER,
    MANIFEST,
    NAMESPACE,
    ON,
    PARTITION,
    POD_CPUS,
    POD_MEMORY,
    REMOTE,
    SBATCH,
    TIME_LIMIT,
    VOLUME_CLAIM,
    Launching,
    place_of,
)
from wirecost.cli.output import FORMAT, check_format
from wirecost.cli.run_output import show

if TYPE_CHECKING:
    from wirecost.spec import Study
    from wirecost.study import Result
    from wirecost.study.allocation import Allocation, OnMachines

EMULATED = "emulated-1g,emulated-300m,emulated-60m"


def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="The training command, as it is started otherwise."),
    ],
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|NxM",
            help="Emulated hosts, or hosts x ranks on each: 2, 2x2; with a launcher machines. May be given "
            "several times.  [default: 2, or all machines]",
        ),
    ] = None,
    networks: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME...",
            help="Networks (wirecost presets networks), or `native`: this machine, with a launcher the machines "
            f"of the job, as they are.  [default: {EMULATED}; with a launcher native]",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured iterations.")] = 20,
    warmup: Annotated[int, typer.Option(min=0, help="Iterations before the measured ones.")] = 5,
    profile: Annotated[
        int, typer.Option(min=0, max=100, help="Iterations under torch.profiler after the measured ones.")
    ] = 3,
    iteration_regex: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="A line of output that matches ends an iteration, instead of an optimizer's step.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job in tables.")] = "job",
    timeout: Annotated[str, typer.Option(help="Longest time over one network, as in '10 min'.")] = "10 min",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Keep the results here, as a study's.  [with a launcher: wirecost-runs/NAME]", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --out: run only what has no result there.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run again what failed or was skipped.")
    ] = False,
    launcher: LAUNCHER = "local",
    on: ON = None,
    remote: REMOTE = None,
    interface: Annotated[
        str | None,
        typer.Option(help="With a launcher: network interface between the machines.  [default: NCCL's or gloo's]"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="With slurm, kubernetes: cuda asks for a GPU for each rank.  [default: cpu]"),
    ] = None,
    partition: PARTITION = None,
    account: ACCOUNT = None,
    time_limit: TIME_LIMIT = None,
    constraint: CONSTRAINT = None,
    container_image: CONTAINER_IMAGE = None,
    volume_claim: VOLUME_CLAIM = None,
    namespace: NAMESPACE = None,
    pod_cpus: POD_CPUS = None,
    pod_memory: POD_MEMORY = None,
    manifest: MANIFEST = None,
    sbatch: SBATCH = None,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Run a training command unchanged over several networks.

    Prints what each of them costs it: exposed and hidden communication, wait and transfer, and the ratio.

    The command is started on emulated hosts of this machine with torchrun's environment variables. If it is
    torchrun or `accelerate launch` itself, its launcher gets the rendezvous. Each run ends after the last
    profiled iteration. With --launcher, the command is started on other machines.
    """
    from wirecost.errors import SpecError
    from wirecost.launch.world import launched_here
    from wirecost.study import Store
    from wirecost.study.job_study import job_study
    from wirecost.study.joined_study import earlier_hosts, joined_for_jobs
    from wirecost.study.runner import default_out

    format = check_format(format)
    if retry_failed and not resume:
        raise SpecError("--retry-failed goes with --resume: it runs failed experiments of an earlier run again")
    if resume and out is None and launcher == "local":
        raise SpecError("--resume goes with --out, which names the directory of the earlier run")
    launching = Launching(
        launcher, on, remote, partition, account, time_limit, constraint, tuple(sbatch or ()), None,
        container_image, volume_claim, namespace, pod_cpus, pod_memory, manifest,
    )  # fmt: skip
    _check(launching, interface, device)
    here = launcher == "local"
    if networks is None:
        networks = EMULATED if here else "native"
    names = [name.strip() for name in networks.split(",")]
    if hosts is None and resume and here and out is not None:
        hosts = earlier_hosts(Store(out), names)
    study = job_study(
        command,
        name=name,
        networks=names,
        hosts=hosts,
        iterations=steps,
        warmup=warmup,
        profile_iterations=profile,
        iteration_regex=iteration_regex,
        timeout=timeout,
        machines=None if here else _machines(launching),
        interface=interface,
        **({} if device is None else {"device": device}),
    )
    if launching.submits:
        out = out or default_out(study)
        study = joined_for_jobs(Store(out), study, launcher)
        if launching.submit(study, out, ["--retry-failed"] if retry_failed else []):
            return
        results = asked = Store(out).contents().results
    elif (launched := launched_here()) is not None:
        from wirecost.study.launched_job import run_launched

        results = asked = run_launched(study, launched, out)
        if not launched.is_first:
            raise typer.Exit(0)
    else:
        out = out if here else out or default_out(study)
        place = None if here else place_of(launcher, _shape(study, launcher), on, remote)
        results = _run_here(study, out, place, resume=resume, retry_failed=retry_failed)
        slugs = {experiment.slug for experiment in study.experiments()}
        asked = [result for result in results if result.directory.name in slugs]
    show(results, format)
    if out is not None and format == "text":
        typer.echo(f"\nResults: {out}\nTables and a page: wirecost report {quote(str(out))} --html report.html")
    from wirecost.study import Status

    if any(r.outcome.status is not Status.DONE for r in asked) or not asked:
        raise typer.Exit(1)


def _check(launching: Launching, interface: str | None, device: str | None) -> None:
    """Raises SpecError for options that don't go together."""
    from wirecost.errors import SpecError
    from wirecost.launch.world import launched_here

    launching.check()
    launcher = launching.launcher
    if interface is not None and launcher == "local":
        raise SpecError("--interface names the network between machines, and goes with another --launcher")
    if device is not None and not launching.submits:
        raise SpecError("--device goes with --launcher slurm or kubernetes, which ask for GPUs")
    if launcher != "local" and launched_here() is not None:
        raise SpecError(f"--launcher {launcher}: this process is one of several that a launcher started already")


def _run_here(
    study: Study, out: Path | None, place: Allocation | OnMachines | None, *, resume: bool, retry_failed: bool
) -> list[Result]:
    """Runs a command's study from this process."""
    from wirecost.cli.progress import StudyProgress
    from wirecost.study.job_study import run_job

    try:
        with StudyProgress() as progress:
            return run_job(study, out, resume=resume, retry_failed=retry_failed, progress=progress, place=place)
    except KeyboardInterrupt:
        if out is not None:
            typer.echo(f"Finished runs are kept in {out}; --resume goes on with the others.", err=True)
        raise


def _machines(launching: Launching) -> int:
    """Returns the number of machines that a launcher uses by default."""
    from wirecost.launch.machines import Machines

    if launching.launcher == "hosts" and launching.on is not None:
        return len(Machines.parse(launching.on, launching.remote).hosts)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    return int(nodes) if launching.launcher == "srun" and nodes.isdigit() and int(nodes) else 2


def _shape(study: Study, launcher: str) -> str | None:
    """Returns the shape of the runs, which an allocation of Slurm has; None for another launcher."""
    from wirecost.errors import SpecError
    from wirecost.study.allocation import Allocation

    if launcher != "srun":
        return None
    shapes = sorted({Allocation.of(experiment).name for experiment in study.job_experiments()})
    if len(shapes) > 1:
        raise SpecError(
            f"--launcher srun: runs one shape, not {', '.join(shapes)}; give one --hosts and --networks"
        )
    return shapes[0]
