"""A study file that can't be what was meant is refused in one line that names the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.errors import SpecError
from wirecost.spec import Experiment, Study, load, parse_yaml, to_yaml, validate
from wirecost.spec.presets import named, names

GOOD = """\
name: x
workloads: [gpt-tiny, gpt-mini]
networks: [emulated-1g, {name: mine, emulate: {rate: 30 Mb/s}}]
plans: [all-reduce, ddp]
hosts: [2, 4]
scaling:
  - {kind: strong, global_batch: 16}
  - {kind: weak, micro_batch: 4}
"""


def read(text: str) -> Study:
    return validate(Study, parse_yaml(text, "s.yaml"), "s.yaml")


def test_the_matrix_is_expanded_in_full_and_once() -> None:
    cells = read(GOOD).model_experiments()
    assert len(cells) == 2 * 2 * 2 * 2 * 2
    assert len({e.slug for e in cells}) == len(cells)
    strong = [e for e in cells if e.scaling == "strong"]
    assert {(e.ranks, e.global_batch, e.micro_batch) for e in strong} == {(2, 16, 8), (4, 16, 4)}
    weak = [e for e in cells if e.scaling == "weak"]
    assert {(e.ranks, e.global_batch, e.micro_batch) for e in weak} == {(2, 8, 4), (4, 16, 4)}
    assert all(e.accumulation == 1 for e in cells)


def test_a_smaller_micro_batch_accumulates() -> None:
    study = read(GOOD.replace("global_batch: 16", "global_batch: 16, micro_batch: 2"))
    assert {(e.ranks, e.accumulation) for e in study.model_experiments() if e.scaling == "strong"} == {
        (2, 4),
        (4, 2),
    }


def test_yaml_round_trip() -> None:
    study = read(GOOD)
    assert read(to_yaml(study)) == study
    for experiment in study.model_experiments():
        again = validate(Experiment, parse_yaml(to_yaml(experiment), "e"), "e")
        assert again == experiment
        assert again.digest == experiment.digest


@pytest.mark.parametrize("name", names("study"))
def test_shipped_studies_are_valid(name: str) -> None:
    assert validate(Study, named("study", name), name).model_experiments()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("workloads:", "wokloads:", "unknown key 'wokloads' (did you mean 'workloads'?); allowed: benchmark, data, "),
        ("gpt-tiny", "gpt-tinny", "workloads[0]: unknown workload 'gpt-tinny' (did you mean 'gpt-tiny'?)"),
        ("emulated-1g,", "emulated-1gg,", "networks[0]: unknown network 'emulated-1gg' (did you mean 'emulated-1g'?)"),
        ("ddp", "dpp", "plans[1]: unknown plan 'dpp' (did you mean 'ddp'?)"),
        ("30 Mb/s", "-30 Mb/s", "networks[1].emulate.rate: a rate must be positive, not '-30 Mb/s'"),
        ("30 Mb/s", "0 Mb/s", "networks[1].emulate.rate: a rate must be positive, not '0 Mb/s'"),
        ("30 Mb/s", "1 b/s", "networks[1].emulate.rate: 1 b/s is too slow for an emulated link; at least 64 kb/s"),
        ("30 Mb/s", "30", "networks[1].emulate.rate: '30' needs a unit"),
        ("30 Mb/s", "fast", "networks[1].emulate.rate: a rate is written like '1 Gb/s', not 'fast'"),
        ("rate", "rat", "networks[1].emulate: unknown key 'rat' (did you mean 'rate'?); allowed: delay, rate, socket"),
        ("batch: 16", "batch: 15", "global_batch 15 does not divide over 2 data-parallel ranks; nearest that does: 14 or 16"),
        ("[2, 4]", "[2, 96]", "96 emulated hosts are too many; use at most 64"),
        ("[2, 4]", "[2, 0]", "hosts[1]: 0 should be a number of hosts, or hosts x ranks on each, like 2x2"),
        ("[2, 4]", "[2, 2xx]", "hosts[1]: '2xx' should be a number of hosts, or hosts x ranks on each"),
        ("[2, 4]", "[]", "hosts: "),
        ("kind: weak", "kind: week", "scaling[1].kind: unknown value 'week' (did you mean 'weak'?); allowed: max-batch, strong, weak"),
        ("kind: weak, micro_batch: 4", "kind: weak", "scaling[1]: weak scaling needs a micro_batch"),
        ("global_batch: 16", "micro_batch: 16", "scaling[0]: strong scaling needs a global_batch"),
        ("name: x", "name: x\nname: y", "s.yaml:2:1: the key 'name' appears twice"),
        ("name: x", "name: [x", "s.yaml:2:10: "),
        ("name: x", "name: ../x", "name: "),
        ("gpt-tiny, gpt-mini", "gpt-tiny, gpt-tiny", "workloads: 'gpt-tiny' appears twice"),
        ("networks:", "# networks:", "networks: is missing"),
        ("name: x", "name: x\nseed: -1", "seed: input should be greater than or equal to 0, not '-1'"),
        ("name: x", "name: x\ntimeout: 0 s", "timeout: a timeout lies above 0 s and is at most 720 h, not 0 s"),
        ("name: x", "name: x\ntimeout: 1e300 h", "timeout: a timeout lies above 0 s and is at most 720 h, not 3.6e+303 s"),
        ("name: x", "name: x\nmin_time: -1 s", "min_time: a time must be positive, not '-1 s'"),
        ("name: x", "name: x\nmin_time: 1e4 h", "min_time: a time to measure lies between 0 s and 720 h, not 3.6e+07 s"),
        ("name: x", "name: x\nmin_time: 11 min", "min_time: 660 s, but the timeout is 600 s"),
        ("[2, 4]", "2", "hosts: should be a list, as in [a, b], not '2'"),
        ("name: x", "name: x\ntimeout: soon", "timeout: a time is written like '5 ms', not 'soon'"),
        ("name: x", "name: !!python/object/apply:os.system [id]", "s.yaml:1:7: "),
    ],
)  # fmt: skip
def test_refusals(old: str, new: str, expected: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    if "96" in new:
        text = text.replace("global_batch: 16", "global_batch: 96")
    with pytest.raises(SpecError) as refusal:
        read(text)
    message = str(refusal.value)
    assert message.startswith("s.yaml:")
    assert expected in message
    assert "\n" not in message


def test_one_mistake_is_counted_once() -> None:
    with pytest.raises(SpecError) as refusal:
        read(GOOD.replace("[gpt-tiny, gpt-mini]", "[gpt-tinny]"))
    assert "more)" not in str(refusal.value)


def test_aliases_that_multiply_are_refused() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40))
    with pytest.raises(SpecError, match="aliases"):
        parse_yaml(bomb, "bomb.yaml")


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(SpecError):
        parse_yaml("a: " + "[" * 100_000, "deep.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        load(Study, tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        load(Study, binary)
    with pytest.raises(SpecError, match=str(tmp_path)):
        load(Study, tmp_path)


def test_a_digest_changes_with_anything() -> None:
    study = read(GOOD)
    first = study.model_experiments()[0]
    assert first.model_copy(update={"seed": 2}).digest != first.digest
    assert read(GOOD.replace("name: x", "name: x\niterations: 9")).model_experiments()[0].digest != first.digest


def test_it_is_the_same_experiment_however_long_it_is_measured() -> None:
    longer = read(GOOD.replace("name: x", "name: x\nmin_time: 3 s")).model_experiments()
    assert [e.digest for e in longer] == [e.digest for e in read(GOOD).model_experiments()]
    assert float(longer[0].min_time) == 3
    assert "min_time: 3 s" in to_yaml(longer[0])
