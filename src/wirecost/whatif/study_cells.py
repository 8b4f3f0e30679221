"""What-if questions between the experiments of a study: the traces of one, asked about the others.

A study keeps the traces of experiments with `profile_iterations` at `traces/rank-R.json.gz`, and measured each of
its networks with a short benchmark. An experiment can be asked about from another one's traces if they differ in
the network or in the size of DistributedDataParallel's buckets only.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wirecost.emulation.hosts import burst_bytes
from wirecost.errors import SpecError, WirecostError, one_of
from wirecost.jobs.steps import read_steps, sharing_a_gpu
from wirecost.spec import AnyExperiment, DataParallel, JobExperiment, Network
from wirecost.study import Store
from wirecost.study.networks import Site, read_benchmark
from wirecost.study.result import Result, read_result
from wirecost.study.store import StoreError
from wirecost.trace.read import find_files
from wirecost.whatif.benchmark_network import benchmark_network
from wirecost.whatif.named_network import calibrated_networks
from wirecost.whatif.network import NetworkModel, StatedNetwork, stated_network
from wirecost.whatif.question import Question
from wirecost.whatif.reading import RankRecord, read_ranks

_MIB = 1 << 20
_HOW = ("iterations", "min_time", "warmup", "profile_iterations", "timeout", "repeat", "network")
"""Keys of an experiment that may differ: how it is measured, and its network."""


def is_study(path: Path) -> bool:
    """Returns whether a path is the folder of a study's results."""
    return (path / "study.yaml").is_file() and (path / "experiments").is_dir()


def traces_of(directory: Path, ranks: int) -> list[Path]:
    """Returns the traces that an experiment kept, one for each rank; empty if one is missing."""
    found = [directory / "traces" / f"rank-{rank}.json.gz" for rank in range(ranks)]
    return found if all(path.is_file() for path in found) else []


def read_cell(directory: Path, ranks: int) -> list[RankRecord]:
    """Returns the traces of an experiment's ranks.

    Raises:
        WirecostError: if one is missing or can't be replayed, or ranks shared a GPU.
    """
    _check_gpus(directory)
    files = traces_of(directory, ranks)
    if not files:
        raise WirecostError(f"{directory}: holds no traces of its {ranks} ranks: run the study with --profile")
    return read_ranks(files, ranks=[f"{path.name}={rank}" for rank, path in enumerate(files)])


def read_named(paths: Sequence[str], ranks: Iterable[str] = ()) -> list[RankRecord]:
    """Returns traces that are named one by one or by their folder, which may be that of an experiment.

    Raises:
        WirecostError: see `read_ranks`, or if ranks of the experiment shared a GPU.
    """
    folders = {path.resolve().parent for path in find_files(list(paths))}
    for folder in sorted(folders):
        if folder.name == "traces":
            _check_gpus(folder.parent)
    return read_ranks(paths, ranks=ranks)


def _check_gpus(directory: Path) -> None:
    """Raises WirecostError if ranks of an experiment shared a GPU."""
    if sharing := sharing_a_gpu(read_steps(directory)):
        raise WirecostError(
            f"{directory}: {len(sharing)} ranks shared a GPU, so the traces don't tell how long they compute with "
            "a GPU each: run the job with as many GPUs as ranks"
        )


def profiled_experiment(folder: Path, name: str | None) -> Result:
    """Returns the experiment of a study whose traces are asked.

    Of several that can be asked about each other, as those of one job over several networks, it is the fastest.

    Args:
        name: its name or the beginning of it; None if nothing is named.

    Raises:
        WirecostError: if there is none, or several could be meant.
    """
    store = Store(folder)
    finished = sorted(path for path in store.experiments.iterdir() if path.is_dir() and path.name[0] != ".")
    named = [path for path in finished if name is None or path.name.startswith(name)]
    if name is not None and not named:
        raise SpecError(f"{folder}: {one_of('experiment', name, [path.name for path in finished])}")
    results = [read_result(path, path.name) for path in named]
    kept = [r for r in results if traces_of(r.directory, r.experiment.ranks)]
    if not kept:
        which = f"experiment '{name}'" if name else "an experiment"
        raise WirecostError(
            f"{folder}: no traces of {which} are kept; run the study with: wirecost study run STUDY --profile"
        )
    if len(kept) > 1 and (fastest := _fastest(kept)) is not None:
        return fastest
    if len(kept) > 1:
        listed = ", ".join(r.directory.name for r in kept[:8])
        raise SpecError(f"{folder}: several experiments have traces; name one with --experiment: {listed}")
    return kept[0]


def _fastest(results: Sequence[Result]) -> Result | None:
    """Returns the experiment with the shortest iteration; None if one of them can't be asked about from it."""
    timed = [(time, result) for result in results if (time := step_time_ns(result)) is not None]
    if not timed:
        return None
    base = min(timed, key=lambda pair: pair[0])[1]
    others = [result for result in results if result is not base]
    asked = [question_between(base.experiment, other.experiment) for other in others]
    return None if None in asked else base


def step_time_ns(result: Result) -> float | None:
    """Returns an experiment's median iteration without the profiler; None if it isn't known."""
    spread = result.breakdown.iteration_ns() if result.breakdown is not None else None
    return None if spread is None else float(spread.median)


def study_networks(folder: Path, base: AnyExperiment, calibration: Path | None = None) -> dict[str, NetworkModel]:
    """Returns the networks of a study by name, at the base's number of ranks.

    Args:
        calibration: what is known of networks that the study's benchmarks didn't measure.

    Raises:
        SpecError: if the calibration can't be read.
    """
    calibrated = {} if calibration is None else calibrated_networks(calibration, base.ranks)
    store = Store(folder)
    experiments = store.planned(store.study())
    found: dict[str, NetworkModel] = {}
    for experiment in experiments:
        same = (experiment.hosts, experiment.ranks_per_host) == (base.hosts, base.ranks_per_host)
        if same and experiment.network.name not in found:
            model = network_of(store, experiment, calibrated)
            if model is not None:
                found[experiment.network.name] = model
    return found


def unknown_networks(questions: Iterable[Question], networks: Mapping[str, NetworkModel]) -> list[str]:
    """Returns the networks that are asked about and of which nothing is known. An experiment on one host sends
    nothing over an emulated network, whose nominal rate then tells nothing.
    """
    names = [q.network for q in questions if q.network is not None and q.network not in networks]
    return list(dict.fromkeys(names))


def network_of(
    store: Store, experiment: AnyExperiment, calibrated: Mapping[str, NetworkModel] = {}
) -> NetworkModel | None:
    """Returns the network of an experiment as the study's benchmark measured it, else as a calibration knows it,
    else by its nominal rate; None if none is known."""
    try:
        document = read_benchmark(store, Site.of(experiment))
    except StoreError:
        document = None
    emulation = experiment.network.emulate
    if document is not None:
        uncapped = emulation is not None and emulation.rate is None and experiment.hosts > 1
        return benchmark_network(experiment.network.name, document, uncapped=uncapped)
    if experiment.network.name in calibrated:
        return calibrated[experiment.network.name]
    if emulation is None or emulation.rate is None or experiment.hosts < 2:
        return None
    return emulated_network(experiment.network)


def emulated_network(network: Network) -> StatedNetwork | None:
    """Returns an emulated network by its nominal rate, its delay and its shaper's bucket; None without a rate."""
    emulation = network.emulate
    if emulation is None or emulation.rate is None:
        return None
    stated = stated_network(float(emulation.rate), None, name=network.name)
    rate_bps = float(emulation.rate)
    return replace(stated, delay_s=float(emulation.delay or 0.0), bucket_bytes=float(burst_bytes(rate_bps)))


def recorded_on(experiment: AnyExperiment) -> StatedNetwork | None:
    """Returns the network between the hosts of an experiment by its nominal rate; None if it has none."""
    return emulated_network(experiment.network) if experiment.hosts > 1 else None


def question_between(base: AnyExperiment, other: AnyExperiment) -> Question | None:
    """Returns the question that leads from one experiment to another; None if more differs than can be asked."""
    if isinstance(base, JobExperiment) or isinstance(other, JobExperiment):
        same = type(base) is type(other) and _content(base) == _content(other)
        return Question(network=other.network.name) if same and base.network != other.network else None
    first, second = _content(base), _content(other)
    buckets = [content["plan"].pop("bucket_bytes") for content in (first, second)]
    for content in (first, second):
        content["plan"].pop("name")
    if first != second:
        return None
    network = other.network.name if base.network != other.network else None
    differ = buckets[0] != buckets[1] and base.plan.data_parallel is DataParallel.DDP
    if network is None and not differ:
        return None
    return Question(network=network, bucket_mib=buckets[1] / _MIB if differ else None)


def _content(experiment: AnyExperiment) -> dict:
    return experiment.model_dump(mode="json", exclude=set(_HOW))


def others(folder: Path, base: Result, networks: Sequence[str]) -> list[Question]:
    """Returns the questions about the networks that are named, else about every experiment of the study that can
    be asked about from the base."""
    if networks:
        return [Question(network=name) for name in networks]
    store = Store(folder)
    found = [question_between(base.experiment, e) for e in store.planned(store.study()) if e.repeat == 1]
    return list(dict.fromkeys(question for question in found if question is not None))


def measured_answers(folder: Path, base: Result) -> dict[str, float]:
    """Returns the median iteration in ms of each experiment that can be asked about from a base, by question."""
    found: dict[str, list[float]] = {}
    for summary in Store(folder).summaries().results:
        question = question_between(base.experiment, summary.experiment)
        if question is not None and summary.summary is not None and summary.summary.iteration_times_ns:
            found.setdefault(question.text, []).append(statistics.median(summary.summary.iteration_times_ns))
    return {text: statistics.median(times) * 1e-6 for text, times in found.items()}
