"""A calibration: clusters and stacks from runs and benchmarks, and its folder of YAML files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirecost.calibration.device import DeviceFit, fit_device, on_one_gpu
from wirecost.calibration.identify import Told
from wirecost.calibration.network import NetworkFit, fit_benches, fit_link
from wirecost.calibration.sources import Found
from wirecost.errors import SpecError, one_of
from wirecost.spec import GPU, Cluster, Link, Precision, Stack, load, to_yaml
from wirecost.spec.efficiency import NetworkEfficiency
from wirecost.spec.presets import named

STACK, CLUSTER = "stack-", "cluster-"
ALONE = "calibrated"
"""The cluster's name where no benchmark names a network."""


@dataclass
class Calibration:
    """Stacks by precision and clusters by their network's name, with how each came about."""

    stacks: dict[Precision, Stack]
    clusters: dict[str, Cluster]
    devices: list[DeviceFit] = field(default_factory=list)
    networks: list[NetworkFit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def calibrate(
    found: Found, *, base: Cluster | None = None, stack: Stack | None = None, gpu_name: str | None = None
) -> Calibration:
    """Fits everything that was found. `base` says what isn't measured: nodes, NICs, links, the GPU.

    Raises:
        SpecError: where there is nothing to fit, or not enough to make a cluster of.
    """
    if not found.runs and not found.benches and not found.seen:
        left = f" ({'; '.join(found.skipped[:3])})" if found.skipped else ""
        raise SpecError(f"nothing to calibrate on: no finished run, benchmark or trace{left}")
    if (
        base is not None
        and gpu_name is None
        and isinstance(base.gpu, str)
        and not any(r.on_cpu for r in found.runs)
    ):
        gpu_name = base.gpu
    devices = []
    for precision in sorted({run.plan.precision for run in found.runs}):
        mine = [run for run in found.runs if run.plan.precision == precision]
        devices.append(fit_device(mine, gpu_name=gpu_name, stack=stack))
    devices = on_one_gpu(devices)
    networks = _networks(found, base)
    made = Calibration({}, {}, devices, networks, list(found.skipped))
    for fit in devices:
        made.stacks[Precision(next(iter(_precision_of(fit))))] = fit.stack
    made.clusters = {c.name: c for c in _clusters(devices, networks, found, base, gpu_name)}
    _note_what_is_missing(made, found, base)
    return made


def _precision_of(fit: DeviceFit) -> set[str]:
    return {fit.stack.name.removeprefix("calibrated-")}


def _networks(found: Found, base: Cluster | None) -> list[NetworkFit]:
    by_network: dict[tuple[str, bool], list[int]] = {}
    for index, bench in enumerate(found.benches):
        by_network.setdefault((bench.network, bench.hosts > 1), []).append(index)
    fits = []
    for indices in by_network.values():
        fits.append(fit_benches([found.benches[i] for i in indices], base=base))
    for several in (False, True):
        # Traces tell of a link where no benchmark does.
        samples = [s for s in found.seen if (s.hosts > 1) == several]
        if not samples or base is None or any((f.kind == "inter") == several for f in fits):
            continue
        link = base.inter_node if several else base.intra_node
        nics = base.nics_per_node if several else 1
        kind = "inter" if several else "intra"
        nccl = base.accelerator.architecture != "cpu"
        fitted, told, errors = fit_link(link, samples, kind, base.gpus_per_node, nics_per_node=nics, nccl=nccl)
        fits.append(
            NetworkFit(
                link.name,
                kind,
                fitted,
                NetworkEfficiency(),
                told,
                errors,
                len(samples),
                base.gpus_per_node,
                1,
                ["traces"],
            )
        )
    return fits


def _clusters(
    devices: Sequence[DeviceFit],
    networks: Sequence[NetworkFit],
    found: Found,
    base: Cluster | None,
    gpu_name: str | None,
) -> list[Cluster]:
    device: GPU | str | None = devices[0].gpu if devices else base.gpu if base else gpu_name
    if device is None:
        raise SpecError(
            "a benchmark alone tells nothing about compute: add runs, or name the GPU with --gpu or --cluster"
        )
    cores = next((fit.cores for fit in devices if fit.cores), base.cores if base else None)
    # Hosts of a network between them hold the fastest of the links that were benchmarked inside one.
    fastest = max((n for n in networks if n.kind == "intra"), key=lambda n: n.link.rate, default=None)
    shared = Link.model_validate(named("link", "shared-memory"))
    runs = ", ".join(sorted({run for fit in devices for run in fit.runs})[:3])
    made = []
    for network in networks or [None]:
        between = network if network is not None and network.kind == "inter" else None
        inside = network if network is not None and network.kind == "intra" else fastest
        intra = inside.link if inside else base.intra_node if base else shared
        inter = between.link if between else base.inter_node if base else intra
        per_node = base.gpus_per_node if base else network.gpus_per_node if network else _ranks_per_host(found)
        name = base.name if base else network.network if network else ALONE
        curves = NetworkEfficiency()
        for one in (inside, between):
            if one is not None:
                curves = curves.merged(one.curves)
        made.append(
            Cluster(
                name=re.sub(r"[^A-Za-z0-9._+-]+", "-", name)[:60],
                description=f"calibrated: {base.description}" if base else "calibrated by wirecost",
                gpu=device,
                gpus_per_node=per_node,
                nodes=max(base.nodes if base else 1, between.hosts if between else 1),
                intra_node=intra,
                inter_node=inter,
                nics_per_node=base.nics_per_node if base else 1,
                cores=cores,
                network_efficiency=curves if curves.collectives else None,
                source=f"wirecost calibrate: {runs or 'no runs'}"
                + (f"; {', '.join(network.sources)}" if network else "; no benchmark"),
            )
        )
    # A network inside a host was benchmarked for its own sake only where no other was.
    if any(n.kind == "inter" for n in networks) and base is not None:
        made = [c for c, n in zip(made, networks, strict=True) if n.kind == "inter"]
    return made


def _ranks_per_host(found: Found) -> int:
    return max((run.ranks_per_host for run in found.runs), default=1)


def _note_what_is_missing(made: Calibration, found: Found, base: Cluster | None) -> None:
    if not made.networks:
        made.notes.append(
            "no benchmark: the network is "
            + (
                f"cluster {base.name}'s as its preset has it"
                if base
                else "unknown, so that only one host can be predicted"
            )
        )
    if not made.devices:
        made.notes.append("no runs: compute is the GPU preset's, and no stack is written")
    for fit in made.devices:
        if fit.cores and fit.cores.threads > 1 and not any(t.name == "cores serial" and t.told for t in fit.told):
            made.notes.append(
                "ranks share processor cores, and these runs don't tell how compute goes with fewer threads: "
                f"taken as {fit.cores.serial:.0%} serial by judgement; add runs kept to one core (taskset -c 0 "
                "wirecost study run ...)"
            )
        if all(run.ranks == 1 for run in found.runs):
            made.notes.append("runs of one rank: how much communication hides under compute stays the start value")
            break


def write(made: Calibration, folder: Path) -> list[Path]:
    """One YAML file for each stack and cluster, with what each value of a stack rests on.

    Raises:
        SpecError: if the folder can't be written.
    """
    texts: dict[str, str] = {}
    for precision, stack in made.stacks.items():
        told = next((fit.told for fit in made.devices if fit.stack is stack), [])
        texts[f"{STACK}{precision}.yaml"] = _commented(stack, told)
    for name, cluster in made.clusters.items():
        texts[f"{CLUSTER}{name}.yaml"] = to_yaml(cluster)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{folder}: can't be written: {error.strerror}") from error
    return [folder / name for name in texts]


def _commented(stack: Stack, told: Sequence[Told]) -> str:
    text = to_yaml(stack)
    for one in told:
        kind, key = one.name.split()
        if kind != "stack":
            continue
        if one.within is None:
            said = "start value: the runs don't tell"
        else:
            said = f"fitted, within {one.within:.0%}" if one.within < 1 else "fitted, its size hardly matters"
        if (share := getattr(stack, key) / one.value) < 1:
            said += f", times the {share:.0%} of the GPU's efficiency that this precision reaches"
        text = re.sub(rf"^({key}: \S+)$", rf"\1  # {said}", text, count=1, flags=re.MULTILINE)
    said = "by how far one-rank runs at their host's pace scatter; 0 without any"
    return re.sub(r"^(host_jitter: \S+)$", rf"\1  # {said}", text, count=1, flags=re.MULTILINE)


def read(folder: Path) -> Calibration:
    """What `write` wrote.

    Raises:
        SpecError: for a folder that holds no calibration, or a damaged file.
    """
    if not folder.is_dir():
        raise SpecError(f"{folder}: no such directory; `wirecost calibrate RUNS --out {folder}` writes one")
    stacks = {p.stem.removeprefix(STACK): load(Stack, p) for p in sorted(folder.glob(f"{STACK}*.yaml"))}
    clusters = {p.stem.removeprefix(CLUSTER): load(Cluster, p) for p in sorted(folder.glob(f"{CLUSTER}*.yaml"))}
    if not clusters or not stacks:
        kind = "cluster" if not clusters else "stack"
        raise SpecError(f"{folder}: no calibration: it holds no {kind}-*.yaml; calibrate on runs and benchmarks")
    try:
        by_precision = {Precision(name): stack for name, stack in stacks.items()}
    except ValueError as error:
        raise SpecError(
            f"{folder}: a stack's file is stack-fp32.yaml, stack-bf16.yaml or stack-fp16.yaml"
        ) from error
    return Calibration(by_precision, clusters)


def chosen(folder: Path, cluster: str | None, precision: Precision, stack: Stack | None) -> tuple[Cluster, Stack]:
    """One cluster and one stack of a calibration's folder; `cluster` names it where there are several.

    Raises:
        SpecError: for a cluster or precision that was not calibrated.
    """
    made = read(folder)
    if cluster is None and len(made.clusters) > 1:
        raise SpecError(f"{folder}: holds several networks; say --cluster: {', '.join(sorted(made.clusters))}")
    name = cluster or next(iter(made.clusters))
    if name not in made.clusters:
        raise SpecError(one_of("cluster", name, made.clusters))
    if stack is None and precision not in made.stacks:
        raise SpecError(
            f"{folder}: precision {precision} was not calibrated; give --precision "
            f"{' or '.join(sorted(made.stacks))}, or --stack"
        )
    return made.clusters[name], stack or made.stacks[precision]
