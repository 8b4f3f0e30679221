"""The study of a folder in which `wirecost run` measured a command, and measures it over further networks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from wirecost.errors import SpecError
from wirecost.spec import JobExperiment, Network, Study, validate
from wirecost.spec.job import JOB_ITERATIONS, JOB_PROFILE_ITERATIONS, JOB_WARMUP
from wirecost.spec.scaling import HostShape
from wirecost.study.store import Store, StoreError

_OPTIONS = {
    "name": "--name",
    "iterations": "--steps",
    "warmup": "--warmup",
    "profile_iterations": "--profile",
    "timeout": "--timeout",
    "device": "--device",
}
"""The options of `wirecost run` that set keys of its study."""
_DEFAULTS = {
    "iterations": JOB_ITERATIONS,
    "warmup": JOB_WARMUP,
    "profile_iterations": JOB_PROFILE_ITERATIONS,
}


def joined_study(store: Store, study: Study) -> Study:
    """Returns the study that a folder has when a command's study was run in it: with the networks and numbers of
    hosts of the results that lie there, then those of `study`. Each network has the hosts that were asked for
    with it.

    Raises:
        SpecError, StoreError: if the folder's study can't be read, or if its results are those of another command
            or were measured with other settings, so that one study can't have both.
    """
    if not store.has_study():
        return study
    earlier = store.study()
    if not store.is_used() or not any(store.is_finished(each) for each in earlier.experiments()):
        return study
    _check(store, earlier, study)
    finished = [each for each in earlier.job_experiments() if store.is_finished(each)]
    kept = [shape for shape in _shapes(earlier) if any(each in finished for each in _on(earlier, shape))]
    networks = {each.network.name: each.network for each in finished}
    hosts = {
        name: [shape for shape in earlier.hosts_of(network) if shape in kept] for name, network in networks.items()
    }
    for network in study.networks:
        networks[network.name] = network
        before = hosts.setdefault(network.name, [])
        before += [shape for shape in study.hosts_of(network) if shape not in before]
    every = list(dict.fromkeys((*kept, *_shapes(study))))
    data = study.model_dump(mode="json") | {
        "networks": [network.model_dump(mode="json") for network in networks.values()],
        "hosts": every,
        "network_hosts": {name: shapes for name, shapes in hosts.items() if set(shapes) != set(every)},
    }
    return validate(Study, data, str(store.root))


def joined_for_jobs(store: Store, study: Study, launcher: str) -> Study:
    """Returns the same for a launcher whose jobs run everything of the study that has no result.

    Raises:
        SpecError: if they would run more than `study`, besides the reasons of `joined_study`.
    """
    joined = joined_study(store, study)
    asked = {each.slug for each in study.job_experiments()}
    more = [e for e in joined.job_experiments() if e.slug not in asked and not store.is_finished(e)]
    if more:
        raise SpecError(
            f"{store.root}: --launcher {launcher} would also run {more[0].network.name} on "
            f"{more[0].hosts}x{more[0].ranks_per_host}, which has no result there; add it, or choose another --out"
        )
    return joined


def earlier_hosts(store: Store, networks: Collection[str] = ()) -> list[str] | None:
    """Returns the numbers of hosts that networks have in a folder's study, or those of the whole study if one of
    them is new; None if it has no study, or one that runs on this machine as it is.

    Raises:
        SpecError, StoreError: if the study can't be read.
    """
    if not store.has_study():
        return None
    study = store.study()
    if all(network.inside for network in study.networks):
        return None
    named = [network for network in study.networks if network.name in networks]
    if len(named) < len(set(networks)):
        named = []
    used = {shape for network in named for shape in study.hosts_of(network)}
    return [str(shape) for shape in _shapes(study) if shape in used or not used]


def _shapes(study: Study) -> list[HostShape]:
    """Returns the numbers of hosts of a study over any of its networks."""
    used = {shape for network in study.networks for shape in study.hosts_of(network)}
    named = dict.fromkeys(shape for each in (study.hosts, *study.network_hosts.values()) for shape in each)
    return [shape for shape in named if shape in used]


def _on(study: Study, shape: HostShape) -> list[JobExperiment]:
    """Returns the experiments of a study on one number of hosts."""
    networks = [network for network in study.networks if shape in study.hosts_of(network)]
    data = {"networks": [each.model_dump(mode="json") for each in networks], "hosts": [shape], "network_hosts": {}}
    return validate(Study, study.model_dump(mode="json") | data, study.name).job_experiments()


def _check(store: Store, earlier: Study, study: Study) -> None:
    """Raises StoreError unless two studies differ in networks and numbers of hosts only."""
    elsewhere = "choose another --out"
    if len(earlier.workloads) != 1 or not earlier.jobs:
        raise StoreError(f"{store.root}: holds results of the study '{earlier.name}'; {elsewhere}")
    before, now = earlier.jobs[0], study.jobs[0]
    if before.arguments != now.arguments:
        raise StoreError(
            f"{store.root}: holds results of another command, '{_shortened(before.arguments)}'; {elsewhere}"
        )
    if before.iteration_regex != now.iteration_regex:
        regex = before.iteration_regex
        how = "without --iteration-regex" if regex is None else f"with --iteration-regex {shlex.quote(regex)}"
        raise StoreError(f"{store.root}: holds results {how}; give the same, or {elsewhere}")
    first, second = _settings(earlier), _settings(study)
    for key in {**first, **second}:
        if first.get(key) != second.get(key):
            raise StoreError(
                f"{store.root}: holds results with {_OPTIONS.get(key, key)} {first.get(key)}, not "
                f"{second.get(key)}; give the same, or {elsewhere}"
            )
    known: dict[str, Network] = {network.name: network for network in earlier.networks}
    for network in study.networks:
        if network != known.get(network.name, network):
            raise StoreError(f"{store.root}: the network '{network.name}' was another one there; {elsewhere}")


def _settings(study: Study) -> dict[str, Any]:
    settings = study.model_dump(
        mode="json", exclude={"workloads", "networks", "hosts", "network_hosts", "description"}
    )
    for key, default in _DEFAULTS.items():
        if settings[key] is None:
            settings[key] = default
    return settings


def _shortened(arguments: Sequence[str]) -> str:
    text = shlex.join(arguments)
    return text if len(text) <= 200 else f"{text[:200]}..."
