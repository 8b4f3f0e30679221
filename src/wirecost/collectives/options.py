"""Converts command-line options to a benchmark request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirecost.collectives.bench import default_backend
from wirecost.collectives.dtypes import dtype_named
from wirecost.collectives.operations import BARRIER, COLLECTIVES, collective_name
from wirecost.collectives.request import Backend, BenchRequest, Mode, ReduceOp, group_lists, size_range
from wirecost.errors import SpecError, one_of
from wirecost.launch.world import World
from wirecost.spec import Study, load, validate
from wirecost.spec.network import Native, Network
from wirecost.spec.presets import named, names
from wirecost.units import parse_size_bytes, parse_time_s

MODES = {"both": (Mode.OUT_OF_PLACE, Mode.IN_PLACE), "in": (Mode.IN_PLACE,), "out": (Mode.OUT_OF_PLACE,)}


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of a benchmark as they are written: sizes, times and names as text.

    Attributes:
        study: the study file in which `network` is described.
        world: the ranks that a launcher started, this one among them.
    """

    collectives: Sequence[str]
    smallest: str
    largest: str | None
    factor: int | None
    step: str | None
    hosts: int | None
    ranks_per_host: int | None
    network: str | None
    groups: str
    backend: str | None
    dtype: str
    redop: str
    iterations: int | None
    warmup: int
    check: bool
    place: str
    timeout: str
    seed: int
    graph: bool = False
    study: Path | None = None
    world: World | None = None


def request_from(options: BenchOptions) -> BenchRequest:
    """Returns the request that the options describe.

    Raises:
        SpecError: one line that names the option and the allowed values.
    """
    world, hosts, backend = options.world, options.hosts or 1, options.backend
    for option, value in (
        ("--hosts", 1 if options.hosts is None else options.hosts),
        ("--ranks-per-host", options.ranks_per_host or 1),
        ("-w", options.warmup),
    ):
        if value < 1:
            raise SpecError(f"{option}: at least 1, not {value}")
    if world is not None:
        if (hosts, options.ranks_per_host) not in ((1, None), (world.hosts, world.local_size)):
            raise SpecError(
                f"--hosts, --ranks-per-host: {world.launcher} started {world.hosts} x {world.local_size} ranks; "
                "leave both out"
            )
        if world.address is None and backend != Backend.MPI:
            raise SpecError(
                f"{world.launcher} started this, which serves --backend mpi; for another backend use torchrun or "
                "srun, or set RANK, WORLD_SIZE and MASTER_ADDR"
            )
        hosts = world.hosts
    if backend is not None and backend not in list(Backend):
        raise SpecError(f"--backend: {one_of('backend', backend, list(Backend))}")
    if options.place not in MODES:
        raise SpecError(f"--place: {one_of('place', options.place, MODES)}")
    chosen = Backend(backend) if backend else default_backend()
    least = _size("-b", options.smallest)
    most = _size("-e", options.largest) if options.largest is not None else least
    if options.redop not in list(ReduceOp):
        raise SpecError(f"-o: {one_of('operation', options.redop, list(ReduceOp))}")
    words = [w for text in options.collectives for w in text.split(",") if w] or ["all_reduce"]
    everything = [*COLLECTIVES, BARRIER]
    network = _network_of(options.network, options.study, chosen, hosts, world)
    if options.hosts is None and world is None and network.emulate is not None:
        hosts = 2  # on one host nothing would go over the network
    per_host = world.local_size if world else options.ranks_per_host or (1 if hosts > 1 else 2)
    request: dict[str, Any] = {
        "collectives": list(dict.fromkeys(everything if words == ["all"] else map(collective_name, words))),
        "sizes_bytes": size_range(
            least,
            most,
            factor=options.factor,
            step_bytes=None if options.step is None else _size("-i", options.step),
        ),
        "backend": chosen,
        "network": network,
        "hosts": hosts,
        "ranks_per_host": per_host,
        "groups": group_lists(options.groups, hosts, per_host),
        "dtype": dtype_named(options.dtype).name,
        "redop": options.redop,
        "modes": MODES[options.place],
        "iterations": options.iterations,
        "warmup": options.warmup,
        "check": options.check,
        "seed": options.seed,
        "timeout_s": _time("--timeout", options.timeout),
        "graph": options.graph,
        "launcher": world.launcher if world else None,
    }
    return validate(BenchRequest, request, "bench")


def _network_of(
    name: str | None, study: Path | None, backend: Backend, hosts: int, world: World | None
) -> Network:
    """Returns the network to benchmark: a study's or a preset, and its native form for a launcher's ranks."""
    network = None if study is None else study_network(study, name)
    if world is None:
        return network or network_named(name, backend, hosts)
    if network is None and name is None:
        return Network(name="native", native=Native())
    return _native_form(network or network_named(name, backend, 1))


def study_network(study: Path, name: str | None) -> Network:
    """Returns a network that a study file describes or names.

    Args:
        name: the network's name. None is the study's only network.

    Raises:
        SpecError: if the study has no such network, or `name` is None and the study has several.
    """
    networks = {network.name: network for network in load(Study, study).networks}
    if name is None:
        if len(networks) > 1:
            raise SpecError(
                f"--study: {study} has several networks; choose one with --network: {', '.join(networks)}"
            )
        (name,) = networks
    if name not in networks:
        raise SpecError(f"--network: {study}: {one_of('network', name, networks)}")
    return networks[name]


def network_named(name: str | None, backend: Backend, hosts: int) -> Network:
    """Returns a network by a preset's name or a file's path; without a name, the interconnect inside this machine.

    Raises:
        SpecError
    """
    if name is None:
        if hosts > 1:
            raise SpecError(
                f"{hosts} hosts need a network between them: --network, one of "
                f"{', '.join(n for n in names('network') if n.startswith('emulated'))}"
            )
        name = "nvlink" if backend is Backend.NCCL else "loopback"
    if name in names("network"):
        return validate(Network, named("network", name), f"network {name}")
    path = Path(name)
    if path.exists() or path.suffix in {".yaml", ".yml"}:
        return load(Network, path)
    raise SpecError(one_of("network", name, names("network")))


def _native_form(network: Network) -> Network:
    """Returns the native form of a network.

    Raises:
        SpecError: for a network that can only be emulated.
    """
    if network.native is None:
        raise SpecError(
            f"--network: '{network.name}' is emulated, but a launcher's ranks use the native network; leave it out"
        )
    return network.model_copy(update={"emulate": None})


def _size(option: str, text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise SpecError(f"{option}: {error}") from error


def _time(option: str, text: str) -> float:
    try:
        return parse_time_s(text)
    except ValueError as error:
        raise SpecError(f"{option}: {error}") from error
