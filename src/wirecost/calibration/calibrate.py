"""Calibrates from all inputs: tables fit presets; runs, benchmarks and traces give stacks and clusters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from wirecost.calibration.fit import HoldOut
from wirecost.calibration.inputs.gather import Inputs
from wirecost.calibration.inputs.table import Setting
from wirecost.calibration.links import NetworkFit, fit_benches, fit_traced
from wirecost.calibration.result import Calibration
from wirecost.calibration.runs import DeviceFit, fit_runs, on_one_gpu
from wirecost.calibration.tables import fit_tables, read_tables
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import SpecError
from wirecost.spec import GPU, Cluster, Link, Stack, Testbed, load_spec
from wirecost.spec.efficiency import NetworkEfficiency

UNNAMED = "calibrated"
"""The cluster's name if no benchmark names a network."""


@dataclass(frozen=True)
class Options:
    """A user's options. `cluster` gives unmeasured properties: nodes, NICs, links, the GPU. Fits to runs start
    from `stack`. `properties`, `hold_out` and `group` apply to tables.
    """

    cluster: Cluster | None = None
    testbed: Testbed | None = None
    stack: Stack | None = None
    gpu: str | None = None
    properties: tuple[str, ...] = ()
    hold_out: HoldOut = field(default_factory=HoldOut)
    group: str | None = None


def calibrate(inputs: Inputs, options: Options | None = None) -> Calibration:
    """Returns the calibration from all inputs. Needs scipy.

    Raises:
        SpecError: if there is nothing to fit to, or too little for a cluster.
    """
    options = options or Options()
    if not inputs.runs and not inputs.benches and not inputs.collectives and not inputs.tables:
        reasons = [f"{d.subject}: {d.message}" if d.subject else d.message for d in inputs.diagnostics[:3]]
        left_out = f" ({'; '.join(reasons)})" if reasons else ""
        raise SpecError(f"nothing to calibrate on: no finished run, benchmark, trace or table{left_out}")
    calibration = Calibration(diagnostics=list(inputs.diagnostics))
    if inputs.tables:
        _add_tables(calibration, inputs, options)
    if inputs.runs or inputs.benches or inputs.collectives:
        _add_clusters(calibration, inputs, options)
    return calibration


def _add_tables(calibration: Calibration, inputs: Inputs, options: Options) -> None:
    tables = read_tables(inputs.tables, Setting(options.cluster, options.testbed))
    calibration.diagnostics += tables.diagnostics
    fits = fit_tables(tables, names=options.properties, hold_out=options.hold_out, group=options.group)
    calibration.fits += fits
    for each in fits:
        calibration.values |= each.values
        if any(name.startswith("stack ") for name in each.values):
            calibration.spread = each.errors.spread


def _add_clusters(calibration: Calibration, inputs: Inputs, options: Options) -> None:
    base, gpu_name = options.cluster, options.gpu
    on_cpu = any(run.on_cpu for run in inputs.runs)
    if base is not None and gpu_name is None and isinstance(base.gpu, str) and not on_cpu:
        gpu_name = base.gpu
    devices = []
    for precision in sorted({run.plan.precision for run in inputs.runs}):
        runs = [run for run in inputs.runs if run.plan.precision == precision]
        devices.append(fit_runs(runs, gpu_name=gpu_name, stack=options.stack))
    devices = on_one_gpu(devices)
    networks = _networks(inputs, base)
    calibration.fits += [device.fit for device in devices] + [network.fit for network in networks]
    calibration.stacks = {device.precision: device.stack for device in devices}
    calibration.of_stacks = {device.precision: device.fit for device in devices}
    clusters = _clusters(devices, networks, inputs, base, gpu_name)
    calibration.clusters = {cluster.name: cluster for cluster in clusters}
    calibration.diagnostics += _missing(devices, networks, inputs, base)


def _networks(inputs: Inputs, base: Cluster | None) -> list[NetworkFit]:
    by_network: dict[tuple[str, bool], list[int]] = {}
    for index, bench in enumerate(inputs.benches):
        by_network.setdefault((bench.network, bench.hosts > 1), []).append(index)
    fits = [fit_benches([inputs.benches[i] for i in places], base=base) for places in by_network.values()]
    for kind in ("intra", "inter"):
        # Traces determine a link if no benchmark does.
        samples = [s for s in inputs.collectives if (s.hosts > 1) == (kind == "inter")]
        if samples and base is not None and not any(fit.kind == kind for fit in fits):
            fits.append(fit_traced(samples, kind, base))
    return fits


def _clusters(
    devices: Sequence[DeviceFit],
    networks: Sequence[NetworkFit],
    inputs: Inputs,
    base: Cluster | None,
    gpu_name: str | None,
) -> list[Cluster]:
    device: GPU | str | None = devices[0].gpu if devices else base.gpu if base else gpu_name
    if device is None:
        raise SpecError(
            "a benchmark alone tells nothing about compute: add runs, or name the GPU with --gpu or --cluster"
        )
    cores = next((d.shared_cores for d in devices if d.shared_cores), base.shared_cores if base else None)
    runs = ", ".join(sorted({run for each in devices for run in each.fit.inputs})[:3]) or "no runs"
    clusters = []
    for network in networks or [None]:
        links = _links(network, networks, base)
        per_node = base.gpus_per_node if base else network.gpus_per_node if network else _ranks_per_host(inputs)
        name = base.name if base else network.network if network else UNNAMED
        hosts = network.hosts if network is not None and network.kind == "inter" else 1
        benchmarks = ", ".join(network.fit.inputs) if network else "no benchmark"
        clusters.append(
            Cluster(
                name=re.sub(r"[^A-Za-z0-9._+-]+", "-", name)[:60],
                description=f"calibrated: {base.description}" if base else "calibrated by wirecost",
                gpu=device,
                gpus_per_node=per_node,
                nodes=max(base.nodes if base else 1, hosts),
                intra_node=links.intra,
                inter_node=links.inter,
                nics_per_node=base.nics_per_node if base else 1,
                shared_cores=cores,
                network_efficiency=links.curves if links.curves.collectives else None,
                source=f"wirecost calibrate: {runs}; {benchmarks}",
            )
        )
    # A network inside a host has its own cluster only if no other network was benchmarked.
    if any(n.kind == "inter" for n in networks) and base is not None:
        clusters = [c for c, n in zip(clusters, networks, strict=True) if n.kind == "inter"]
    return clusters


@dataclass(frozen=True)
class _Links:
    intra: Link
    inter: Link
    curves: NetworkEfficiency


def _links(network: NetworkFit | None, networks: Sequence[NetworkFit], base: Cluster | None) -> _Links:
    """Returns the links of the cluster with a network. For a network between hosts, the link inside a host is the
    fastest one that was benchmarked there.
    """
    fastest = max((n for n in networks if n.kind == "intra"), key=lambda n: n.link.rate, default=None)
    inside = network if network is not None and network.kind == "intra" else fastest
    between = network if network is not None and network.kind == "inter" else None
    intra = inside.link if inside else base.intra_node if base else load_spec("link", "shared-memory")
    inter = between.link if between else base.inter_node if base else intra
    curves = NetworkEfficiency()
    for each in (inside, between):
        if each is not None:
            curves = curves.merged(each.curves)
    return _Links(intra, inter, curves)


def _ranks_per_host(inputs: Inputs) -> int:
    return max((run.ranks_per_host for run in inputs.runs), default=1)


def _missing(
    devices: Sequence[DeviceFit], networks: Sequence[NetworkFit], inputs: Inputs, base: Cluster | None
) -> list[Diagnostic]:
    """Returns diagnostics on properties that the inputs don't determine, with the values that are used instead."""
    diagnostics = []
    if not networks:
        taken = f"that of cluster {base.name}'s preset" if base else "unknown: only one host can be predicted"
        diagnostics.append(diagnostic("no_benchmark", f"no benchmark: the network is {taken}"))
    if not devices:
        message = "no runs: compute is the GPU preset's, and no stack is written"
        diagnostics.append(diagnostic("no_runs", message))
    for device in devices:
        cores = device.shared_cores
        known = any(name.startswith("shared_cores ") for name in device.fit.determined)
        if cores and cores.threads > 1 and not known:
            message = (
                "ranks share processor cores, and these runs don't determine how compute goes with fewer threads: "
                f"taken as {cores.serial:.0%} serial by judgement"
            )
            diagnostics.append(diagnostic("core_sharing_assumed", message))
    if devices and all(run.ranks == 1 for run in inputs.runs):
        message = "runs of one rank: how much communication hides under compute stays the start value"
        diagnostics.append(diagnostic("overlap_not_determined", message))
    return diagnostics
