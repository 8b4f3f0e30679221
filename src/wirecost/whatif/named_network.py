"""Networks by name or file: calibrated ones, cluster presets, clusters' YAML files, results of benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wirecost.costmodel.machine import machine_of
from wirecost.diagnostics import diagnostic
from wirecost.errors import SpecError, one_of
from wirecost.spec import Cluster, MatrixPrecision, Precision, load_spec
from wirecost.spec.loading import stack_named
from wirecost.spec.presets import names
from wirecost.units import format_rate_bps, format_size_bytes
from wirecost.whatif.network import ClusterNetwork, FittedNetwork, NetworkModel, line_through


def named_network(given: str, calibration: Path | None, world: int, others: Iterable[str] = ()) -> NetworkModel:
    """Returns the network that a name or a file means.

    Args:
        given: the name of a calibrated network or of a cluster preset, a cluster's YAML file, or a result of
            `wirecost bench --format json`.
        calibration: a calibration's folder or document, as `wirecost calibrate --out` writes it.
        world: number of ranks of the job.
        others: further names that the caller knows, as those of a study's networks.

    Raises:
        SpecError: if there is none of that name.
    """
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        cluster = load_spec("cluster", given)
        return _cluster_network(cluster, f"cluster file {given}", world)
    if path.suffix == ".json":
        return _bench_network(path)
    calibrated: dict[str, Cluster] = _clusters(calibration) if calibration is not None else {}
    if given in calibrated:
        return _cluster_network(calibrated[given], f"calibration {calibration}", world)
    if given in names("cluster"):
        return _cluster_network(load_spec("cluster", given), f"preset {given}", world)
    known = [*others, *calibrated, *names("cluster")]
    raise SpecError(
        one_of("network", given, known)
        + ("" if calibration else "; a network of your own: --calibration DIR, a cluster's .yaml, --bandwidth")
    )


def _clusters(folder: Path) -> dict[str, Cluster]:
    if folder.is_dir():
        files = sorted(folder.glob("cluster-*.yaml"))
        if not files:
            raise SpecError(f"{folder}: holds no calibrated cluster; expected files cluster-NAME.yaml")
        found = [load_spec("cluster", str(path)) for path in files]
        return {cluster.name: cluster for cluster in found}
    from wirecost.calibration.saved import read

    return dict(read(folder).clusters)


def _cluster_network(cluster: Cluster, basis: str, world: int) -> ClusterNetwork:
    # Transfers don't depend on the precision, but some processors and GPUs have no BF16.
    has_bf16 = MatrixPrecision.BF16 in cluster.accelerator.peak_flops
    precision = Precision.BF16 if has_bf16 else Precision.FP32
    machine = machine_of(cluster, stack_named("generic"), precision)
    found = ClusterNetwork(cluster.name, basis, cluster=cluster, machine=machine, world=world)
    if world > cluster.gpus and cluster.nodes > 1:
        found.cluster = cluster.model_copy(update={"nodes": -(-world // cluster.gpus_per_node)})
    emulated = bool(cluster.network_efficiency and cluster.network_efficiency.emulated)
    found.sockets = cluster.nodes > 1 and cluster.gpus_per_node == 1 and emulated
    found.uncapped = _uncapped_sockets(cluster)
    if found.uncapped:
        found.diagnostics.append(
            diagnostic(
                "sockets_share_processor",
                f"network '{cluster.name}' is TCP without a cap: a benchmark's rate of "
                f"{format_rate_bps(float(cluster.inter_node.rate))} isn't reached in a job that needs the "
                "processor too",
            )
        )
    if cluster.network_efficiency is None:
        found.diagnostics.append(
            diagnostic(
                "network_not_measured",
                f"network '{cluster.name}': transfer times come from its nominal rate, no collective was measured",
            )
        )
    return found


def _uncapped_sockets(cluster: Cluster) -> bool:
    """Returns whether the network between hosts is emulated by this machine's processor without a rate of its
    own."""
    if cluster.nodes < 2 or cluster.network_efficiency is None:
        return False
    emulated = bool(getattr(cluster.network_efficiency, "emulated", False))
    return emulated and "nominal rate as the benchmark" not in (cluster.inter_node.source or "")


def _bench_network(path: Path) -> NetworkModel:
    """Returns a network from the JSON of `wirecost bench`: the line through each collective's sizes."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: can't be read as a benchmark's JSON: {error}") from error
    rows = document.get("results") or document.get("rows") or document.get("measurements") if isinstance(
        document, dict) else document  # fmt: skip
    by_op: dict[str, dict[int, list[int]]] = {}
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        op, size, time = row.get("collective"), row.get("size_bytes"), row.get("median_ns") or row.get("time_ns")
        if (
            isinstance(op, str)
            and isinstance(size, int)
            and isinstance(time, int | float)
            and size > 0
            and time > 0
        ):
            by_op.setdefault(op, {}).setdefault(size, []).append(int(time))
    if not by_op:
        raise SpecError(f"{path}: holds no results of `wirecost bench --format json`")
    lines = {op: line_through(sizes) for op, sizes in by_op.items()}
    largest = format_size_bytes(max(max(s) for s in by_op.values()))
    return FittedNetwork(path.stem, f"benchmark {path} up to {largest}", lines=lines)
