"""The command line: fast help, one line for every refusal, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import wirecost_here
from support.results import invented_store
from wirecost.spec import Network, parse_yaml, validate
from wirecost.spec.presets import KINDS, names

HEAVY = ("torch", "numpy", "pydantic", "polars", "altair", "rich", "jinja2", "pyroute2", "msgspec", "yaml")


def wirecost(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wirecost", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from wirecost.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['--help'])\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_version_and_help() -> None:
    assert wirecost("--version").stdout.startswith("wirecost 0.")
    for command in ((), ("study",), ("study", "run"), ("report",), ("demo",)):
        run = wirecost(*command, "--help")
        assert run.returncode == 0
        assert "Usage: wirecost" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study", "run", "none.yaml"), "none.yaml: no such file"),
        (("study", "run", "dmeo"), "dmeo: no such file; unknown study 'dmeo' (did you mean 'demo'?); allowed: "),
        (("report", "."), "no study was run here"),
        (("report", "nowhere"), "no study was run here"),
    ],
)
def test_refusals_are_one_line_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    run = wirecost(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("workloads: [gpt-2-medium, gpt-x]", "workloads[1]: unknown workload 'gpt-x'"),
        (
            "plans: [{name: p, expert_parallel: 2}]",
            "workload 'gpt-tiny' with plan 'p': expert_parallel 2 needs a workload with mixture_of_experts",
        ),
        (
            "plans: [{name: p, precision: bf16, matrix_precision: fp8}]",
            "the engine multiplies matrices in 'precision' (bf16), not in fp8; leave matrix_precision out",
        ),
        (
            "plans: [{name: p, data_parallel: zero3, sharding_group: hpz}]",
            "the engine has no second copy of the parameters in each node (hpz); use sharding_group all or node",
        ),
        (
            "plans: [{name: p, lora_rank: 8}]",
            "the engine trains all parameters, no adapters; leave lora_rank out",
        ),
        ("plans: [{name: p, graphs: true}]", "graphs are CUDA graphs, which need device cuda, not cpu"),
        (
            "plans: [{name: p, data_parallel: zero3, gradient_traffic: int8}]",
            "zero3 reduce-scatters gradients, in fp16 or bf16 but not as int8",
        ),
        ("data: {corpus: nowhere.txt}", "data.corpus: no such file 'nowhere.txt'"),
        ("networks: [{name: real, native: {interface: eth0}}]", "native network"),
    ],
)
def test_a_study_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, line: str, message: str
) -> None:
    lines = {
        "name": "name: s",
        "workloads": "workloads: [gpt-tiny]",
        "networks": "networks: [emulated-1g]",
        "plans": "plans: [all-reduce]",
        "scaling": "scaling: [{kind: weak, micro_batch: 2}]",
    }
    lines[line.split(":")[0]] = line
    (tmp_path / "s.yaml").write_text("\n".join(lines.values()))
    run = wirecost_here("study", "run", "s.yaml", "--out", "out", cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
    assert not list((tmp_path / "out").glob("experiments/*"))


def test_a_study_without_its_verb_is_told_the_verb() -> None:
    run = wirecost_here("study", "my study\x1b.yaml")
    assert run.returncode == 2
    assert "wirecost study run 'my study\\x1b.yaml'" in run.stderr


def test_a_dry_run_checks_the_corpus_too(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "name: s\nworkloads: [gpt-tiny]\nfabrics: [loopback]\nplans: [all-reduce]\n"
        "scaling: [{kind: weak, micro_batch: 2}]\ndata: {corpus: nowhere.txt}\n"
    )
    run = wirecost_here("study", "run", "s.yaml", "--dry-run", cwd=tmp_path)
    assert run.returncode == 2
    assert "no such file 'nowhere.txt'" in run.stderr


@pytest.mark.parametrize("kind", list(KINDS))
def test_presets_of_a_kind_have_a_line_each(kind: str) -> None:
    for argument in (kind, KINDS[kind]):
        lines = wirecost_here("presets", argument).stdout.splitlines()
        assert [line.split()[0] for line in lines] == list(names(kind))
        assert all(len(line.split(maxsplit=1)[1]) > 5 for line in lines)


def test_lines_of_presets_hold_what_one_chooses_by() -> None:
    assert "8 H100-SXM-80GB and 8 NICs of 400 Gb/s" in wirecost_here("presets", "clusters").stdout
    assert (
        "80 GiB of memory, 3.35 TB/s; dense TFLOP/s: 495 fp32, 989 bf16" in wirecost_here("presets", "gpu").stdout
    )
    assert "8.03 B parameters" in wirecost_here("presets", "workloads").stdout


def test_presets_are_listed_and_shown_as_yaml() -> None:
    assert len(wirecost("presets").stdout.splitlines()) == len(KINDS)
    assert "emulated-1g" in wirecost("presets").stdout
    shown = wirecost("presets", "network", "tcp-10g").stdout
    assert validate(Network, parse_yaml(shown, "shown"), "shown").name == "tcp-10g"
    for arguments in (("presets", "netwrk"), ("presets", "network", "tcp-11g")):
        run = wirecost(*arguments)
        assert run.returncode == 2
        assert "did you mean" in run.stderr


def test_a_page_is_written_though_figures_cannot_be(tmp_path: Path) -> None:
    invented_store(tmp_path)
    (tmp_path / "figures").write_text("in the way")
    figures = ("--figures", str(tmp_path / "figures"))
    run = wirecost_here("report", str(tmp_path), "--html", str(tmp_path / "page.html"), *figures)
    assert run.returncode == 2
    assert (tmp_path / "page.html").exists()
    assert "figures: can't be written: File exists; --figures names another folder" in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        "transport {}", "validate {}", "calibrate {}", "calibrate {}.csv", "trace {}", "compare {} {}", "report {}",
        "project {} --gpus 8 --efficiency 1", "study run {}", "study run {}.yaml", "predict {}.json --cluster dgx-h100",
        "predict gpt-tiny --cluster {}.yaml", "predict gpt-tiny --cluster dgx-h100 --calibration {}", "bench --read {}",
        "predict --study {} --cluster dgx-h100", "need {}.yaml --cluster dgx-h100", "validate {} --predictions x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["a" * 5000, "loop", "file/below"])
def test_a_path_that_no_file_system_takes_is_one_line(
    command: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.fuzzing.oracle import run

    monkeypatch.chdir(tmp_path)
    for name in ("loop", "loop.csv", "loop.yaml", "loop.json"):
        (tmp_path / name).symlink_to(tmp_path / name)
    (tmp_path / "file").touch()
    ending = run(command.format(*[path] * 2).split())
    assert ending.fault is None
    assert ending.code == 2
    assert len(ending.err) < 1500


def test_storage_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for temporary files that takes the first file and nothing more."""
    from wirecost.cli import main
    from wirecost.collectives import bench

    full = tmp_path / "wirecost-bench-0"

    def run(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(full))

    monkeypatch.setattr(bench, "temporary_directory", run)
    told: list[str] = []
    monkeypatch.setattr("wirecost.cli._tell", told.append)
    with pytest.raises(SystemExit) as ending:
        main(["bench", "--backend", "gloo", "--ranks-per-host", "2"])
    assert ending.value.code == 1
    assert len(told) == 1
    assert told[0].startswith(f"{full}: can't be written: No space left on device; make room")
