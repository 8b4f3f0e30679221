"""The reference pages and schemas are those that the code gives, and real outputs and files fit the schemas."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from reference_pages import columns
from reference_pages.pages import all_files
from reference_pages.schemas import OUTPUTS, YAML_FILES, all_schemas
from reference_pages.yaml_keys import keys, models
from support import benches, doc_inputs, nccl_tests, tracefiles
from support.results import invented_store
from wirecost.calibration.inputs.columns import COUNTS, QUANTITIES
from wirecost.cli import application
from wirecost.collectives.document import Document, fit_entries
from wirecost.collectives.efficiency import fit_rows
from wirecost.collectives.readers import read_results
from wirecost.collectives.result import BenchNetwork
from wirecost.counters.rows import Row
from wirecost.planner.measured_plans import Measured, MeasuredPlans
from wirecost.prediction.study_validation import ExperimentError
from wirecost.report import read_report
from wirecost.report.data import to_csv
from wirecost.spec.presets import names, text
from wirecost.trace.tables import NAMES, column_types

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
files_made = functools.cache(all_files)
schemas = functools.cache(all_schemas)
"""Not made before a test needs them: every parallel worker imports every file of tests."""


def run(*arguments: str) -> Any:
    """Runs a command in this process and returns its JSON."""
    result = CliRunner().invoke(application(), list(arguments))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def check(schema: str, document: Any) -> None:
    validator = jsonschema.Draft202012Validator(schemas()[schema])
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in validator.iter_errors(document)]
    assert not errors, errors[:5]


def test_reference_is_what_the_code_gives() -> None:
    made = files_made()
    written = {
        name: (REFERENCE / name).read_text(encoding="utf-8") for name in made if (REFERENCE / name).is_file()
    }
    outdated = [name for name, content in made.items() if written.get(name) != content]
    assert made and outdated == [], "out of date: run scripts/reference"


def test_no_made_file_is_left_over() -> None:
    assert {p.name for p in (REFERENCE / "schemas").iterdir()} == {
        name.removeprefix("schemas/") for name in files_made() if name.startswith("schemas/")
    }


@pytest.mark.parametrize("title", models())
def test_every_yaml_key_has_a_meaning(title: str) -> None:
    described = keys(models()[title])
    assert described
    assert [key for key, _, _, meaning in described if not meaning] == []


def test_every_key_of_a_schema_has_a_description() -> None:
    checked = 0
    for name in YAML_FILES:
        for part in (schemas()[name], *schemas()[name]["$defs"].values()):
            for key, schema in part["properties"].items():
                assert schema.get("description"), f"{name}: {key}"
                checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", sorted(path.stem for path in (REFERENCE / "schemas").iterdir()))
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas()[name])
    assert schemas()[name]["$id"].endswith(f"/{name}.json")


def _with_numbers(data: dict[str, Any]) -> dict[str, Any]:
    """Returns data in which texts like 4.0e8 are numbers, as YAML 1.2 has them."""
    number = re.compile(r"[0-9.]+e[0-9]+")
    return {k: float(v) if isinstance(v, str) and number.fullmatch(v) else v for k, v in data.items()}


@pytest.mark.parametrize("kind", ["study", "workload", "plan", "network", "cluster", "stack"])
def test_presets_fit_their_schema(kind: str) -> None:
    presets = names(kind)
    assert presets
    for name in presets:
        data = _with_numbers(yaml.safe_load(text(kind, name)))
        check(kind, data if kind in ("cluster", "stack") else {"name": name} | data)


def test_a_mistake_in_a_study_does_not_fit_its_schema() -> None:
    study = {
        "name": "s", "workloads": ["gpt-tiny"], "networks": [{"name": "slow", "emulate": {"rate": "40 Mb/s"}}],
        "plans": ["ddp"], "scaling": [{"kind": "strong", "global_batch": 8}],
    }  # fmt: skip
    check("study", study)
    mistakes = [
        {"plan": "ddp"},
        {"iterations": 0},
        {"device": "gpu"},
        {"timeout": 600},
        {"networks": [{"name": "slow", "emulate": {"rate": 40}}]},
        {"scaling": []},
    ]
    for mistake in mistakes:
        with pytest.raises(AssertionError):
            check("study", study | mistake)


def test_yaml_examples_in_the_docs_fit_their_schema() -> None:
    checked = 0
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            if all(f"\n{key}:" in f"\n{block}" for key in ("workloads", "networks", "plans", "scaling")):
                check("study", {"name": page.stem} | yaml.safe_load(block))
                checked += 1
    assert checked >= 4


# Columns


def test_study_columns_are_those_of_the_report(tmp_path: Path) -> None:
    invented_store(tmp_path)
    header = next(csv.reader(io.StringIO(to_csv(read_report(tmp_path)))))
    assert header == list(columns.STUDY)


def test_trace_columns_are_those_of_the_tables() -> None:
    assert {name: list(column_types(name)) for name in NAMES} == {
        name: list(columns.TRACE[name]) for name in NAMES
    }


def test_monitor_columns_are_those_of_a_row() -> None:
    assert list(Row.__dataclass_fields__) == list(columns.MONITOR)


def test_input_columns_with_a_domain_are_described() -> None:
    described = {*columns.ITERATIONS, *columns.FRACTIONS, *columns.COLLECTIVES}
    assert {*COUNTS, *QUANTITIES} - described == set()


def header(*arguments: str) -> list[str]:
    """Returns the columns of a command's CSV."""
    result = CliRunner().invoke(application(), [*arguments, "--format", "csv"])
    assert result.exit_code == 0, result.output
    return next(csv.reader(io.StringIO(result.stdout)))


def test_columns_of_predictions_are_described() -> None:
    job = ("llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64")
    assert header("predict", *job) == list(columns.PREDICTION)
    assert header("need", *job, "--fraction", "0.3") == list(columns.NEED)
    swept = header("predict", *job, "--sweep", "gpus=8..16")
    assert swept == [name for name in columns.SWEEP if name != "refused"]
    assert header("predict", "--study", "demo", "--cluster", "dgx-h100") == list(columns.PREDICTED_STUDY)


def test_columns_of_comparisons_and_projections_are_described(tmp_path: Path) -> None:
    for name in ("before", "after"):
        tracefiles.write_job(tmp_path / name, 2, 3)
    assert header("compare", str(tmp_path / "before"), str(tmp_path / "after")) == list(columns.COMPARISON)
    breakdown = tmp_path / "breakdown.json"
    run("trace", str(tmp_path / "before"), "--format", "json", "--breakdown", str(breakdown))
    assert header("project", str(breakdown), "--gpus", "8", "--efficiency", "0.9") == list(columns.PROJECTION)
    for name in ("a", "b"):
        invented_store(tmp_path / name)
    assert header("compare", str(tmp_path / "a"), str(tmp_path / "b")) == list(columns.STUDY_COMPARISON)


def test_columns_of_calibrations_and_validations_are_described(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(doc_inputs.TABLE)
    assert header("calibrate", str(table)) == list(columns.CALIBRATION)
    assert header("validate", str(table)) == list(columns.VALIDATION)
    errors = [name for name in ExperimentError.__dataclass_fields__ if name != "diagnostics"]
    assert errors == list(columns.STUDY_VALIDATION)


# Outputs


def test_every_output_schema_allows_no_other_keys() -> None:
    assert OUTPUTS
    for name in OUTPUTS:
        schema = schemas()[name]
        choices = schema.get("anyOf", [schema])
        assert all(choice["additionalProperties"] is False for choice in choices), name


def test_trace_and_breakdown_fit_their_schemas(tmp_path: Path) -> None:
    job, breakdown = tmp_path / "job", tmp_path / "breakdown.json"
    tracefiles.write_job(job, 4, 3)
    check(
        "trace", run("trace", str(job), "--format", "json", "--breakdown", str(breakdown), "--step-time", "1 ms")
    )
    check("breakdown", json.loads(breakdown.read_text()))


def test_transport_fits_its_schema(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(
        "a:1:2 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 10 commId 0x2 - Init START\n"
        "a:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
        "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    )
    check("transport", run("transport", str(log), "--format", "json"))
    log.write_text("nothing of NCCL\n")
    check("transport", run("transport", str(log), "--format", "json"))


def test_doctor_fits_its_schema() -> None:
    check("doctor", run("doctor", "--format", "json"))


def test_study_status_fits_its_schema(tmp_path: Path) -> None:
    invented_store(tmp_path)
    document = run("study", "status", str(tmp_path), "--format", "json")
    check("study-status", document)
    assert document["counts"]["done"] == sum(each["state"] == "done" for each in document["experiments"])


def test_report_fits_its_schema(tmp_path: Path) -> None:
    invented_store(tmp_path)
    check("report", run("report", str(tmp_path), "--format", "json"))


def test_predictions_fit_their_schema() -> None:
    one = ("predict", "llama-3-8b", "--cluster", "dgx-h100", "--format", "json")
    check("predict", run(*one, "--gpus", "64"))
    check("predict", run(*one, "--gpus", "64", "--sweep", "bandwidth=100Gb/s..400Gb/s"))
    check("predict", run(*one, "--gpus", "64", "--sweep", "tensor_parallel=1..64"))
    check("predict", run("predict", "--study", "demo", "--cluster", "dgx-h100", "--format", "json"))


PLAN_VARIANTS = (
    ("--explain", "1", "2"),
    ("--tokens", "300B", "--price", "2.50", "--deadline", "1 h"),
    ("--may-not-fit", "--schedules", "1f1b,zb-h1,dualpipe", "--stack", "generic"),
    ("--constraint", "memory<=1GiB"),
    ("--tp", "2", "--change-one"),
)


@pytest.mark.parametrize("more", PLAN_VARIANTS)
def test_plans_fit_their_schema(more: tuple[str, ...]) -> None:
    job = ("plan", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "16", "-B", "64", "--format", "json")
    result = CliRunner().invoke(application(), [*job, *more])
    # 1 says that no plan fits or meets the deadline.
    assert result.exit_code in (0, 1), result.output
    check("plans", json.loads(result.stdout))


def test_measured_plans_fit_their_schema(tmp_path: Path) -> None:
    done = Measured(0, "tp=1", 1.0, 2.0, "done")
    failed = Measured(1, "tp=2", 1.0, None, "failed", "rank 1 ended: Killed")
    both = MeasuredPlans(tmp_path, tmp_path / "measured.csv", [done, failed], 1, ["a note"])
    check("measured-plans", json.loads(json.dumps(both.document())))
    check("measured-plans", json.loads(json.dumps(MeasuredPlans(tmp_path).document())))


def test_bench_of_others_fits_its_schema(tmp_path: Path) -> None:
    log = tmp_path / "nccl-tests.log"
    log.write_text(nccl_tests.table(["a", "b"]))
    check("bench-read", run("bench", "--read", str(log), "--format", "json"))


def test_bench_fits_its_schema(tmp_path: Path) -> None:
    log = tmp_path / "nccl-tests.log"
    log.write_text(nccl_tests.table(["a", "b"]))
    rows = read_results(log).tables[0].rows
    document = Document(
        environment={"python": "3.12"},
        request=benches.request(),
        network=BenchNetwork(name="loopback", emulated=False),
        rows=rows,
        fits=fit_entries(fit_rows(rows)),
    )
    check("bench", json.loads(document.model_dump_json()))


@pytest.mark.skipif(sys.platform != "linux", reason="counters are Linux's")
def test_monitor_fits_its_schema(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    result = CliRunner().invoke(
        application(), ["monitor", "--out", str(out), "--for", "300ms", "--every", "50ms", "--quiet"]
    )
    assert result.exit_code == 0, result.output
    lines = out.read_text().splitlines()
    assert lines
    for line in lines:
        check("monitor", json.loads(line))
