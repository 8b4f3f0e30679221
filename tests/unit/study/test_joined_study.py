"""`wirecost run --resume` adds networks to a folder's study, and refuses what one study can't hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wirecost.errors import SpecError, WirecostError
from wirecost.spec import JobExperiment, Study, parse_yaml, to_yaml, validate
from wirecost.study import Status, Store, runner
from wirecost.study.job_study import job_study, run_job
from wirecost.study.joined_study import earlier_hosts, joined_for_jobs, joined_study
from wirecost.study.progress import Silent
from wirecost.study.state import read_state
from wirecost.study.store import Outcome, StoreError


def of_command(
    networks: Sequence[str],
    hosts: Sequence[str] | None = None,
    command: Sequence[str] = ("python", "a.py"),
    **more: Any,
) -> Study:
    return job_study(command, **{"name": "job", "networks": networks, "hosts": hosts, **more})


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The experiments that were run: each is published at once, as one that ran out of memory."""
    names: list[str] = []

    def run_one(store: Store, experiment: JobExperiment, *_: object, launcher: object) -> Outcome:
        names.append(f"{experiment.network.name} {experiment.hosts}x{experiment.ranks_per_host}")
        store.begin(experiment)
        outcome = Outcome(status=Status.OOM)
        store.publish(experiment, outcome, None)
        return outcome

    monkeypatch.setattr(runner, "run_one", run_one)
    monkeypatch.setattr(runner, "check_runnable", lambda study: None)
    return names


def run(study: Study, out: Path) -> list[str]:
    """Runs a command's study with --resume, and returns the networks and hosts of its results."""
    results = run_job(study, out, resume=True, retry_failed=False, progress=Silent())
    return [f"{r.experiment.network.name} {r.experiment.hosts}x{r.experiment.ranks_per_host}" for r in results]


def test_other_networks_join_those_of_the_folder(tmp_path: Path, started: list[str]) -> None:
    run(of_command(["emulated-1g", "emulated-100m"]), tmp_path)
    assert run(of_command(["emulated-60m"]), tmp_path) == [
        "emulated-1g 2x1",
        "emulated-100m 2x1",
        "emulated-60m 2x1",
    ]
    assert started == ["emulated-1g 2x1", "emulated-100m 2x1", "emulated-60m 2x1"]
    assert [e.network.name for e in Store(tmp_path).contents().planned] == [
        "emulated-1g", "emulated-100m", "emulated-60m"
    ]  # fmt: skip
    # The networks that were named first are still those of the same study.
    assert len(run(of_command(["emulated-1g"]), tmp_path)) == 3
    assert len(started) == 3


def test_other_hosts_join_and_only_what_is_named_is_run(tmp_path: Path, started: list[str]) -> None:
    run(of_command(["emulated-1g", "emulated-100m"]), tmp_path)
    shown = run(of_command(["emulated-1g"], ["4", "2x2"]), tmp_path)
    assert started[2:] == ["emulated-1g 4x1", "emulated-1g 2x2"]
    assert sorted(shown) == sorted(started)


def test_networks_without_a_result_leave_the_study(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run(of_command(["emulated-1g"]), tmp_path)
    store.save_study(of_command(["emulated-1g", "emulated-100m"], ["2", "4"]))
    joined = joined_study(store, of_command(["emulated-60m"]))
    assert [network.name for network in joined.networks] == ["emulated-1g", "emulated-60m"]
    assert joined.hosts == (2,)
    assert to_yaml(validate(Study, parse_yaml(to_yaml(joined), "s"), "s")) == to_yaml(joined)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"command": ["python", "b.py", "x y"]},
            "holds results of another command, 'python a.py'; choose another",
        ),
        ({"iterations": 7}, "holds results with --steps 20, not 7; give the same, or choose another --out"),
        ({"timeout": "1 min"}, "holds results with --timeout 600 s, not 60 s; give the same"),
        ({"name": "other"}, "holds results with --name job, not other"),
        ({"iteration_regex": "x"}, "holds results without --iteration-regex; give the same"),
        (
            {"networks": ["native"], "machines": 2},
            "the network 'native' was another one there; choose another --out",
        ),
    ],
)
def test_what_one_study_cannot_hold_is_refused(
    other: dict[str, Any], words: str, tmp_path: Path, started: list[str]
) -> None:
    run(of_command(["emulated-1g", "native"]), tmp_path)
    before = (tmp_path / "study.yaml").read_bytes()
    with pytest.raises(StoreError) as refused:
        run(of_command(**{"networks": ["emulated-60m"], **other}), tmp_path)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert (tmp_path / "study.yaml").read_bytes() == before
    assert len(started) == 2


def test_a_study_of_several_workloads_is_no_folder_of_a_command(tmp_path: Path) -> None:
    study = of_command(["emulated-1g"])
    second = study.jobs[0].model_copy(update={"name": "second"})
    run(study.model_copy(update={"workloads": (*study.workloads, second)}), tmp_path)
    with pytest.raises(StoreError, match="holds results of the study 'job'; choose another --out"):
        run(of_command(["emulated-60m"]), tmp_path)


def test_a_study_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    run(of_command(["emulated-1g"]), tmp_path)
    (tmp_path / "study.yaml").write_text("name: [")
    with pytest.raises(WirecostError, match=r"study\.yaml"):
        run(of_command(["emulated-60m"]), tmp_path)
    assert (tmp_path / "study.yaml").read_text() == "name: ["


def test_jobs_that_would_run_more_than_was_named_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run(of_command(["emulated-1g", "emulated-100m"]), tmp_path)
    joined = joined_for_jobs(store, of_command(["emulated-60m"]), "slurm")
    assert len(joined.networks) == 3
    assert joined_for_jobs(store, of_command(["emulated-1g"], ["4"]), "slurm").hosts == (2, 4)
    # Asked for earlier, and not run yet.
    run(of_command(["emulated-1g"], ["4"]), tmp_path)
    store.save_study(of_command(["emulated-1g", "emulated-100m"], ["2", "4"]))
    with pytest.raises(SpecError, match=r"--launcher slurm would also run emulated-100m on 4x1, .*; add it"):
        joined_for_jobs(store, of_command(["emulated-1g"], ["4"]), "slurm")


def states(folder: Path) -> list[str]:
    """Returns the state, network and hosts of each experiment that `wirecost study status` shows."""
    return [
        f"{each.state} {each.experiment.network.name} {each.experiment.hosts}x{each.experiment.ranks_per_host}"
        for each in read_state(folder).experiments
    ]


def test_nothing_waits_that_nobody_asked_for(tmp_path: Path, started: list[str]) -> None:
    run(of_command(["emulated-1g", "loopback"]), tmp_path)
    assert "network_hosts" not in (tmp_path / "study.yaml").read_text()
    run(of_command(["emulated-100m"], ["4", "2x2"]), tmp_path)
    run(of_command(["emulated-60m"], ["4"]), tmp_path)
    assert sorted(states(tmp_path)) == sorted(f"oom {each}" for each in started)
    assert len(started) == 5
    study = Store(tmp_path).study()
    assert study.hosts == (2, 4, "2x2")
    assert study.network_hosts == {
        "emulated-1g": (2,), "loopback": (2,), "emulated-100m": (4, "2x2"), "emulated-60m": (4,)
    }  # fmt: skip
    # A network that gets further hosts keeps those that it had.
    run(of_command(["emulated-60m"], ["2", "2x2"]), tmp_path)
    assert started[5:] == ["emulated-60m 2x1", "emulated-60m 2x2"]
    assert "emulated-60m" not in Store(tmp_path).study().network_hosts
    assert len(states(tmp_path)) == 7


def test_what_was_asked_for_earlier_still_waits(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run(of_command(["emulated-1g"], ["2", "4"]), tmp_path)
    run(of_command(["emulated-100m"], ["2"]), tmp_path)
    store.save_study(of_command(["emulated-1g", "emulated-100m"], ["2", "4"]))  # a run that was interrupted
    run(of_command(["emulated-60m"], ["2"]), tmp_path)
    assert [each for each in states(tmp_path) if each.startswith("waiting")] == ["waiting emulated-100m 4x1"]
    assert len(states(tmp_path)) == 5


def test_new_networks_get_the_hosts_of_the_earlier_ones(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert earlier_hosts(store) is None
    store.save_study(of_command(["native"]))
    assert earlier_hosts(store) is None  # one process on one host tells nothing of emulated ones
    store.save_study(of_command(["native", "emulated-1g"], ["4", "2x2"]))
    assert earlier_hosts(store) == ["4", "2x2"]
    run(of_command(["emulated-1g"], ["4"]), tmp_path / "several")
    run(of_command(["emulated-100m"], ["8"]), tmp_path / "several")
    several = Store(tmp_path / "several")
    assert earlier_hosts(several) == earlier_hosts(several, ["emulated-1g", "emulated-60m"]) == ["4", "8"]
    assert earlier_hosts(several, ["emulated-100m"]) == ["8"]
    assert earlier_hosts(several, ["emulated-100m", "emulated-1g"]) == ["4", "8"]
