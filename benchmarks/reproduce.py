"""A study predicted from one-GPU runs and benchmarks, then measured: each workload in a lane with GPUs of its own,
or one after another where each needs them all.

    PYTHONPATH=src python benchmarks/reproduce.py calibrate --study interconnect --shapes 2 --out DIR --seconds 540
    PYTHONPATH=src python benchmarks/reproduce.py predict   --study interconnect --out DIR
    PYTHONPATH=src python benchmarks/reproduce.py measure   --study interconnect --shapes 2 --out DIR --seconds 540

`calibrate` trains each workload alone in every precision and micro-batch of the study (DIR/alone-*) and benchmarks
every network (DIR/bench); `predict` fits them and predicts every cell (DIR/predictions-STUDY): commit those before
going on; `measure` runs the cells of the shapes named (hosts, or hosts x ranks on each) and gathers them in
DIR/STUDY, an ordinary study's directory. What lies in DIR already isn't run again: a machine that is only had in
slices will do. `pack` makes one small file of DIR for the way between machines. Several --study may be given.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

from lanes import Step, all_gpus, run

from wirecost.breakdown import Breakdown
from wirecost.errors import SpecError
from wirecost.spec import Device, Experiment, Network, Plan, Study, to_yaml, validate
from wirecost.spec.experiment import Scaling
from wirecost.spec.presets import named
from wirecost.spec.scaling import ScalingRule
from wirecost.study import Status, Store
from wirecost.study.loading import load_study
from wirecost.units import Seconds

WIRECOST = f"{sys.executable} -m wirecost"
COLLECTIVES = "all_reduce all_gather reduce_scatter send_recv"
LARGEST_BYTES = 128 << 20
LARGEST_S = 0.3
"""Longest time of a benchmark's largest message on a shaped link."""
LEFT_OUT = {"samples", "logs", "corpus", "counters.jsonl"}
"""Large files that fits and reports don't need."""


def shaped(study: Study, shapes: list[str] | None) -> Study:
    """Returns the study's experiments on some shapes of hosts. Raises SpecError."""
    if shapes is None:
        return study
    hosts = [int(s) if s.isdigit() else s for s in shapes]
    return validate(Study, study.model_dump(mode="json") | {"hosts": hosts}, "--shapes")


ALONE_S = 5.0
"""Least measuring time of a workload alone, because hosts change their speed from second to second."""


def alone(study: Study, experiments: Iterable[Experiment]) -> list[Study]:
    """Returns studies of each workload on one GPU, in every precision and micro-batch of the study."""
    studies = []
    mine = list(experiments)
    loopback = validate(Network, named("network", "loopback"), "network")
    inside = next((e.network for e in mine if e.network.inside), loopback)
    for workload in study.workloads:
        cells = [e for e in mine if e.workload == workload]
        precisions = {e.plan.precision: None for e in cells}
        studies.append(
            study.model_copy(
                update={
                    "name": f"alone-{study.name}-{workload.name}"[:60],
                    "workloads": (workload,),
                    "networks": (inside,),
                    "plans": tuple(Plan(name=f"alone-{p}", precision=p) for p in precisions),
                    "scaling": tuple(
                        ScalingRule(kind=Scaling.WEAK, micro_batch=size)
                        for size in sorted({e.micro_batch for e in cells})
                    ),
                    "hosts": (1,),
                    "ranks_per_host": 1,
                    "benchmark": False,
                    "min_time": Seconds(max(ALONE_S, study.min_time)),
                }
            )
        )
    return studies


ONE_CORE = "taskset -c 0 "
"""For one rank on a CPU: what each of several hosts has, that share the machine's cores."""


def run_study(study: Study, store: Path, gpus: int, out: Path, prefix: str = "") -> Step | None:
    """Returns a step that runs the experiments without a stored result; None if all have one."""
    results = Store(store)
    if all(results.is_finished(e) for e in study.model_experiments()):
        return None
    path = out / "lanes" / f"{store.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_yaml(study))
    command = f"{prefix}{WIRECOST} study run {shlex.quote(str(path))} --out {shlex.quote(str(store))} --resume"
    return Step(store.name, gpus, command, limit_s=3600, lines=4)


def slots(experiment: Experiment) -> int:
    """Returns the number of GPUs that an experiment occupies; without GPUs the whole machine is one slot."""
    return experiment.ranks if experiment.device is Device.CUDA else 1


def benches(experiments: Iterable[Experiment], out: Path, gpus: int) -> list[Step]:
    """Returns one step for each network and shape that experiments use. Each has the machine to itself."""
    steps: dict[str, Step] = {}
    for e in experiments:
        path = out / "bench" / f"{e.network.name}-{e.hosts}x{e.ranks_per_host}.json"
        if e.ranks == 1 or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        rate = e.network.emulate.rate if e.network.emulate is not None else None
        largest = LARGEST_BYTES if rate is None else min(LARGEST_BYTES, int(rate / 8 * LARGEST_S))
        backend = "nccl" if e.device is Device.CUDA else "gloo"
        command = (
            f"{WIRECOST} bench {COLLECTIVES} --network {shlex.quote(e.network.name)} --hosts {e.hosts} "
            f"--ranks-per-host {e.ranks_per_host} --backend {backend} --place in -b 1K -e {largest} -f 4 -w 2 "
            f"--format json > {shlex.quote(str(path))}.partial && mv {shlex.quote(str(path))}.partial "
            f"{shlex.quote(str(path))}"
        )
        steps[path.name] = Step(path.stem, gpus, f"sh -c {shlex.quote(command)}", limit_s=300, lines=3)
    return list(steps.values())


def calibrate(studies: list[Study], options: argparse.Namespace) -> list[Step]:
    steps = []
    for study in studies:
        experiments = shaped(study, options.shapes).model_experiments()
        few = [e for e in experiments if e.ranks <= options.bench_ranks and slots(e) <= len(options.gpus)]
        steps += benches(few, options.out, len(options.gpus))
        prefix = ONE_CORE if study.device is Device.CPU else ""
        steps += [
            step
            for lone_study in alone(study, experiments)
            if (step := run_study(lone_study, options.out / lone_study.name, 1, options.out, prefix))
        ]
    return list({step.name: step for step in steps}.values())  # studies share networks


def measure(studies: list[Study], options: argparse.Namespace) -> list[Step]:
    steps = []
    for study in studies:
        mine = shaped(study, options.shapes)
        if options.workloads:
            chosen = tuple(w for w in mine.workloads if w.name in options.workloads)
            mine = mine.model_copy(update={"workloads": chosen})
        if options.scaling:
            mine = mine.model_copy(update={"scaling": tuple(r for r in mine.scaling if r.kind in options.scaling)})
        if not mine.workloads or not mine.scaling:
            continue
        for label, (lane, gpus) in lanes(mine, len(options.gpus)).items():
            store = options.out / f"lane-{study.name}-{label}"
            fill(store, options.out / study.name)
            if step := run_study(lane, store, gpus, options.out):
                steps.append(step)
    return steps


def lanes(study: Study, gpus: int) -> dict[str, tuple[Study, int]]:
    """Returns the lanes of a study by label, each with the number of GPUs that it needs.

    If several lanes can run at a time, each workload on each shape is a lane with GPUs of its own. The other
    experiments share one lane, because a lane is slow to start. Emulated links without a rate limit are as fast as
    the machine's CPU time allows, so they are measured alone with all GPUs taken.
    """
    study = study.model_copy(update={"benchmark": False})
    links = [f for f in study.networks if f.emulate is not None and f.emulate.rate is None]
    lanes_by_label: dict[str, tuple[Study, int]] = {}
    together, uncapped = [], []
    for shape in study.hosts:
        on_shape = study.model_copy(update={"hosts": (shape,)})
        needed = max(slots(e) for e in on_shape.model_experiments())
        if gpus < 2 * needed <= 2 * gpus:
            together.append(shape)
            continue
        apart = links if needed <= gpus else []
        uncapped += [shape] if apart else []
        networks = tuple(f for f in study.networks if f not in apart)
        for workload in study.workloads if networks else ():
            lane = on_shape.model_copy(update={"workloads": (workload,), "networks": networks})
            lanes_by_label[f"{workload.name}-{shape}"] = (lane, needed)
    if together:
        lanes_by_label["together"] = (study.model_copy(update={"hosts": tuple(together)}), gpus)
    if uncapped:
        alone = study.model_copy(update={"hosts": tuple(uncapped), "networks": tuple(links)})
        lanes_by_label["uncapped"] = (alone, gpus)
    return {label: lane for label, lane in lanes_by_label.items() if lane[0].model_experiments()}


def fill(store: Path, gathered: Path) -> None:
    """Copies earlier results into the store, so that they aren't measured again."""
    if gathered.is_dir() and not store.is_dir():
        shutil.copytree(gathered / "experiments", store / "experiments")


def is_done(cell: Path) -> bool:
    status = cell / "status.json"
    return status.exists() and json.loads(status.read_bytes())["status"] == Status.DONE


def gather(studies: list[Study], out: Path, shapes: list[str] | None) -> None:
    """Gathers every lane's results in one directory for each study."""
    for study in studies:
        gathered = out / study.name
        # Another study's name may begin like this one's.
        mine = {e.slug for part in (study, shaped(study, shapes)) for e in part.model_experiments()}
        # Where two lanes have the same cell, what is done counts, not what failed.
        for lane in sorted(out.glob(f"lane-{study.name}-*/experiments/[!.]*"), key=is_done):
            if lane.name in mine and (lane / "status.json").exists():
                shutil.copytree(lane, gathered / "experiments" / lane.name, dirs_exist_ok=True)
        if gathered.is_dir():
            (gathered / "study.yaml").write_text(to_yaml(study))
            done = sum(1 for e in study.model_experiments() if Store(gathered).is_finished(e))
            print(f"{study.name}: {done} of {len(study.model_experiments())} cells have a result")


def predict(studies: list[str], out: Path) -> int:
    """Predicts the studies. Raises CalledProcessError if a prediction fails."""
    sources = [*sorted(out.glob("alone-*")), *sorted((out / "bench").glob("*.json"))]
    fitted = out / "mine"
    # A fit that is no better than the presets is saved all the same: intervals and warnings show it.
    command = ["calibrate", *map(str, sources), "--out", str(fitted), "--force"]
    subprocess.run([*shlex.split(WIRECOST), *command], check=True)
    for name in studies:
        folder = out / f"predictions-{load_study(name).name}"
        command = ["predict", "--study", name, "--calibration", str(fitted), "--out", str(folder)]
        subprocess.run([*shlex.split(WIRECOST), *command], check=True)
        as_table(folder, out / f"{folder.name}.csv")
    return 0


def as_table(predictions: Path, path: Path) -> None:
    """Writes every cell's prediction as one line, to be stored before the measurement."""
    listed = json.loads((predictions / "predictions.json").read_bytes())["predicted"]
    rows = [["cell", "iteration_s", "interval_low_s", "interval_high_s", "comm_fraction", "memory_gib"]]
    for cell in listed:
        prediction = Breakdown.model_validate_json((predictions / f"{cell}.json").read_bytes())
        time_ns, fraction, interval = prediction.iteration_ns(), prediction.comm_fraction(), prediction.interval
        assert time_ns is not None
        assert fraction is not None
        ends = (
            ["unknown"] * 2
            if interval is None
            else [f"{t / 1e9:.5f}" for t in (interval.low_ns, interval.high_ns)]
        )
        memory = prediction.details["memory_bytes"]["total"] / 2**30
        rows.append([cell, f"{time_ns.median / 1e9:.5f}", *ends, f"{fraction.median:.4f}", f"{memory:.2f}"])
    path.write_text("\n".join(map(",".join, rows)) + "\n")


def pack(out: Path) -> Path:
    path = out / "packed.tgz"

    def small(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = set(Path(entry.name).parts)
        return None if parts & LEFT_OUT or any(p.startswith((".", "lane-")) for p in parts) else entry

    with tarfile.open(path, "w:gz") as archive:
        for entry in sorted(out.iterdir()):
            if entry != path:
                archive.add(entry, entry.name, filter=small)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("calibrate", "predict", "measure", "pack"))
    parser.add_argument("--study", action="append", default=[], help="a study's name or file; repeatable")
    parser.add_argument("--shapes", type=lambda text: text.split(","), help="of hosts, like 2,2x2; all by default")
    parser.add_argument(
        "--workloads", type=lambda text: text.split(","), help="measure: of the studies' by name; all by default"
    )
    parser.add_argument(
        "--scaling", type=lambda text: text.split(","), help="measure: strong, weak; both by default"
    )
    parser.add_argument(
        "--bench-ranks", type=int, default=8, help="calibrate on benchmarks of at most so many ranks"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--gpus", help="which, with commas; all by default")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    try:
        studies = [load_study(name) for name in options.study]
        for study in studies:
            shaped(study, options.shapes)
    except SpecError as error:
        parser.error(str(error))
    known = {workload.name for study in studies for workload in study.workloads}
    if unknown := set(options.workloads or ()) - known:
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    if unknown := set(options.scaling or ()) - set(Scaling):
        parser.error(f"no scaling {', '.join(sorted(unknown))}; there are: {', '.join(Scaling)}")
    if options.stage in ("pack", "predict") and not options.out.is_dir():
        parser.error(
            f"--out: no such directory: {options.out}; {options.stage} takes one that calibrate or measure made"
        )
    if options.stage == "pack":
        print(pack(options.out))
        return 0
    if options.stage == "predict":
        return predict(options.study, options.out)
    on_gpus = any(study.device is Device.CUDA for study in studies)
    options.gpus = options.gpus.split(",") if options.gpus else all_gpus() if on_gpus else ["none"]
    steps = (calibrate if options.stage == "calibrate" else measure)(studies, options)
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    # A machine that is taken back says so: what has been measured is gathered then as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        bad = run(steps, options.gpus, options.out / "logs", deadline)
    finally:
        gather(studies, options.out, options.shapes)
        print(pack(options.out))
    print(f"failed or not finished: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
