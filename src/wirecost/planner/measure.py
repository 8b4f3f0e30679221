"""Runs the best plans until their order is decided, with wirecost's engine or a command of the user.

Each plan is an experiment of a study, in fresh processes, on this machine, in an allocation of Slurm or on
machines that the user names. On this machine, hosts of a cluster with several nodes are emulated, with links of
the cluster's rate. After each plan the others are judged: measured times correct the predictions of plans that
were not run, and a plan whose corrected interval lies above the best measured time can't be the fastest.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from wirecost.errors import SpecError, UnsupportedError
from wirecost.planner.answer import Answer
from wirecost.planner.distinct import Distances
from wirecost.planner.measured_plans import Measured, MeasuredPlans
from wirecost.planner.measured_step import run_step
from wirecost.planner.measured_table import measured_table
from wirecost.planner.measuring import Measuring, job_of
from wirecost.spec import Device, Network, Plan, Study, validate
from wirecost.spec.plan import PipelineSchedule
from wirecost.storage import write_file
from wirecost.study.allocation import Allocation
from wirecost.study.progress import Progress
from wirecost.study.runnable import gpus_here
from wirecost.study.runner import run_study
from wirecost.study.store import Status
from wirecost.train.checks import check_combination, check_plan, check_workload
from wirecost.units import format_rate_bps

TABLE = "measured.csv"
ITERATIONS, WARMUP = 6, 2
MOST_RANKS_ON_CPU = 64
THIS_MACHINE = Measuring()
_SEARCHED = 5000
"""Plans from the fastest on among which those that the engine runs are looked for."""


def measure(
    answer: Answer,
    count: int,
    out: Path | None,
    progress: Progress | None = None,
    how: Measuring = THIS_MACHINE,
) -> MeasuredPlans:
    """Runs up to `count` plans of an answer, the fastest predicted first.

    Raises:
        SpecError, UnsupportedError: if this machine or the engine can't run the job.
    """
    question = answer.question
    if how.command is None and (problem := check_workload(question.workload)):
        raise SpecError(problem)
    device = _device(question.gpus) if how.place is None else _device_of_nodes()
    places = _runnable(answer, count, by_engine=how.command is None)
    folder = out or Path("wirecost-runs") / f"plan-{question.workload.name}"
    result = MeasuredPlans(folder, notes=_notes(answer, device))
    distances = Distances(answer.found, places)
    waiting = list(places)
    while waiting:
        place = waiting.pop(0)
        result.measured.append(_run(answer, place, device, folder, progress, how))
        kept = [other for other in waiting if _can_win(answer, result, distances, other)]
        result.left += len(waiting) - len(kept)
        waiting = kept
    if device is Device.CUDA and result.best is not None:
        result.table = folder / TABLE
        write_table(answer, result.measured, result.table)
    return result


def write_table(answer: Answer, measured: list[Measured], path: Path) -> None:
    """Writes measured plans as a table of iteration times.

    Raises:
        OSError: if it can't be written.
    """
    done = [
        (answer.found.choice(each.place), answer.setup_at(each.place), each.measured_s)
        for each in measured
        if each.measured_s is not None
    ]
    write_file(path, measured_table(done))


def _device(ranks: int) -> Device:
    """Returns the device of the ranks: GPUs where there are enough."""
    gpus = gpus_here()
    if gpus >= ranks:
        return Device.CUDA
    if ranks > MOST_RANKS_ON_CPU:
        raise UnsupportedError(
            f"--measure: {ranks} ranks are more than this machine's {gpus} GPUs, and than the "
            f"{MOST_RANKS_ON_CPU} that run on its CPUs; run the job on the cluster, with the output of --emit"
        )
    return Device.CPU


def _device_of_nodes() -> Device:
    """Returns the device of other machines' ranks: GPUs if this machine, which is one of them, has any."""
    return Device.CUDA if gpus_here() else Device.CPU


def _runnable(answer: Answer, count: int, *, by_engine: bool) -> list[int]:
    """Returns the places of the fastest plans, or of those that the engine can run: the best variant of each set
    of degrees."""
    workload = answer.question.workload
    places: list[int] = []
    known = set()
    why = ""
    for place in range(min(len(answer.found), _SEARCHED)):
        choice = answer.found.choice(place)
        key = (choice.tp, choice.pp, choice.cp, choice.ep, choice.mb)
        if key in known:
            continue
        plan = answer.setup_at(place).plan
        problem = (check_plan(plan) or check_combination(workload, plan)) if by_engine else None
        if problem is None:
            known.add(key)
            places.append(place)
            if len(places) == count:
                break
        why = problem or why
    if not places:
        raise SpecError(f"--measure: the engine runs none of the best plans: {why}")
    return places


def _run(
    answer: Answer, place: int, device: Device, folder: Path, progress: Progress | None, how: Measuring
) -> Measured:
    choice, predicted = answer.found.choice(place), float(answer.found.total_s[place])
    out = folder / f"plan-{place + 1}"
    if how.command is not None and isinstance(how.place, Allocation):
        arguments = job_of(answer, place, how, folder)["command"]
        network = _network(answer, how.place.hosts, device, how)
        done, reason = run_step(arguments, how.place, network, out, iterations=ITERATIONS, warmup=WARMUP)
        status = "failed"
    else:
        study = study_of(answer, place, device, how, folder)
        results = run_study(study, out, resume=True, progress=progress, place=how.place)
        done = next((r for r in results if r.outcome.status is Status.DONE and r.breakdown is not None), None)
        status = str(results[0].outcome.status) if results else "not run"
        reason = (results[0].outcome.reason if results else None) or ""
    if done is None or done.breakdown is None:
        return Measured(place, choice.label, predicted, None, status, reason)
    spread = done.breakdown.iteration_ns()
    return Measured(place, choice.label, predicted, spread.median / 1e9 if spread else None, "done")


def study_of(
    answer: Answer, place: int, device: Device, how: Measuring = THIS_MACHINE, folder: Path = Path()
) -> Study:
    """Returns the study of one experiment that runs the plan at a place. Files of a command go to `folder`.

    Raises:
        SpecError: if the engine can't run it.
    """
    question, setup = answer.question, answer.setup_at(place)
    per_node = question.cluster.gpus_per_node
    nodes = max(1, question.gpus // per_node)
    plan = setup.plan.model_copy(update={"name": f"plan-{place + 1}"})
    if plan.pipeline_parallel == 1:
        plan = plan.model_copy(update={"pipeline_schedule": PipelineSchedule.ONE_F_ONE_B})
    shape, network = f"{nodes}x{question.gpus // nodes}", _network(answer, nodes, device, how)
    if how.command is not None:
        data = {
            "name": f"plan-{place + 1}",
            "workloads": [job_of(answer, place, how, folder)],
            "networks": [network.model_dump(mode="json", exclude_none=True)],
            "hosts": [shape],
            "iterations": ITERATIONS,
            "warmup": WARMUP,
            "benchmark": False,
        }
        return validate(Study, data, f"plan {answer.found.choice(place).label}")
    data = {
        "name": f"plan-{place + 1}",
        "workloads": [question.workload.model_dump(mode="json", exclude_none=True)],
        "networks": [network.model_dump(mode="json", exclude_none=True)],
        "plans": [Plan.model_validate(plan.model_dump()).model_dump(mode="json", exclude_none=True)],
        "hosts": [shape],
        "scaling": [{"kind": "strong", "global_batch": question.global_batch, "micro_batch": setup.micro_batch}],
        "iterations": ITERATIONS,
        "warmup": WARMUP,
        "device": device.value,
        "benchmark": False,
    }
    return validate(Study, data, f"plan {answer.found.choice(place).label}")


def _network(answer: Answer, nodes: int, device: Device, how: Measuring) -> Network:
    if how.place is not None:
        return validate(Network, {"name": "cluster", "native": {"interface": how.interface}}, "network")
    if nodes == 1:
        if device is Device.CUDA:
            return Network.model_validate({"name": "inside", "inside": True, "native": {}})
        return Network.model_validate({"name": "loopback", "inside": True, "native": {"interface": "lo"}})
    rate = answer.question.cluster.node_rate_Bps * 8
    return Network.model_validate({"name": "emulated", "emulate": {"rate": format_rate_bps(rate, 12)}})


def _can_win(answer: Answer, result: MeasuredPlans, distances: Distances, place: int) -> bool:
    """Returns whether a plan that was not run may be faster than the fastest measured one."""
    best = result.best
    if best is None or best.measured_s is None:
        return True
    ratios = [e.measured_s / e.predicted_s for e in result.measured if e.measured_s is not None]
    expected_s = float(answer.found.total_s[place]) * statistics.geometric_mean(ratios)
    return expected_s * math.exp(-distances.half_width(best.place, place)) < best.measured_s


def _notes(answer: Answer, device: Device) -> list[str]:
    cluster = answer.question.cluster
    if device is Device.CPU and cluster.shared_cores is None:
        return [
            f"The ranks ran on this machine's CPUs, and the predictions are those of {cluster.name}: the order of "
            "the plans may differ, and errors say nothing. A cluster from `wirecost calibrate` describes this "
            "machine."
        ]
    return []
