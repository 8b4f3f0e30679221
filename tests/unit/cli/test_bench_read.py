"""`wirecost bench --read`: what is printed, what goes to files, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.nccl_tests import body, table
from wirecost.cli import application
from wirecost.errors import SpecError

CLUSTER = """\
name: mine
gpu: H100
gpus_per_node: 8
nodes: 2
intra_node: nvlink4
inter_node: infiniband-ndr
nics_per_node: 8
"""


def read(path: Path, *options: str) -> Result:
    return CliRunner().invoke(application(), ["bench", "--read", str(path), *options])


def written(folder: Path, text: str) -> Path:
    path = folder / "results.txt"
    path.write_text(text)
    return path


def test_a_table_ends_with_its_share_of_the_links(tmp_path: Path) -> None:
    result = read(written(tmp_path, table(busbw=360.0)), "--hardware", "dgx-h100")
    assert result.exit_code == 0, result.output
    last = [line for line in result.stdout.splitlines() if line.startswith("# links: ")]
    assert len(last) == 1
    assert "% of the 450 GB/s that NVLink 4 gives each GPU, " in last[0]
    assert "% of the 476 GB/s that NCCL's own model expects of NVLS (cluster dgx-h100)" in last[0]


def test_the_gpus_name_is_enough_inside_a_node(tmp_path: Path) -> None:
    result = read(written(tmp_path, table()))
    assert "(GPU NVIDIA H100 80GB HBM3)" in result.stdout
    document = json.loads(read(written(tmp_path, table()), "--format", "json").stdout)
    (links,) = document["links"]
    assert (links["links_Bps"], links["algorithm"], links["table"]) == (450e9, "NVLS", 0)
    assert document["tables"][0]["ranks"] == 8 and {row["table"] for row in document["rows"]} == {0}


def test_a_cluster_file_is_the_hardware(tmp_path: Path) -> None:
    cluster = tmp_path / "mine.yaml"
    cluster.write_text(CLUSTER)
    path = written(tmp_path, table(["a"] * 8 + ["b"] * 8, busbw=45.0))
    result = read(path, "--hardware", str(cluster))
    assert "8 x infiniband-ndr give each node" in result.stdout
    assert "the usual cause: as much as 1 of 8 NICs gives" in result.stdout
    result = read(path, "--cluster", str(cluster))
    assert "(cluster mine)" in result.stdout and "network_efficiency" in cluster.read_text()


def test_an_unknown_hardware_is_refused(tmp_path: Path) -> None:
    result = read(written(tmp_path, table()), "--hardware", "nowhere")
    assert isinstance(result.exception, SpecError) and "unknown cluster 'nowhere'" in str(result.exception)
    assert not result.stdout


def test_wrong_results_end_with_exit_code_1_and_go_nowhere(tmp_path: Path) -> None:
    cluster, plot = tmp_path / "mine.yaml", tmp_path / "x.svg"
    cluster.write_text(CLUSTER)
    path = written(tmp_path, table(footer="3 FAILED"))
    result = read(path, "--cluster", str(cluster), "--plot", str(plot))
    assert result.exit_code == 1
    assert "CORRUPT RESULTS" in result.stderr and "3 FAILED" in result.stderr
    assert cluster.read_text() == CLUSTER and not plot.exists()
    document = json.loads(read(path, "--format", "json").stdout)
    assert document["read"][0]["corrupt"]


def test_what_was_left_out_is_counted(tmp_path: Path) -> None:
    lines = table().splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("   "))
    lines[at] = lines[at][:70]
    result = read(written(tmp_path, "\n".join(lines)))
    assert result.exit_code == 0
    assert "1 row left out" in result.stderr


@pytest.mark.parametrize("mixed", ["types (bfloat16, float)", "runs"])
def test_a_cluster_holds_one_fit_for_each_collective_and_size(tmp_path: Path, mixed: str) -> None:
    cluster = tmp_path / "mine.yaml"
    cluster.write_text(CLUSTER)
    lines = table().splitlines()
    end = next(k for k, line in enumerate(lines) if "Out of bounds" in line)
    second = [*lines[:end], *body(8, dtype="bfloat16"), *lines[end:]] if mixed != "runs" else lines * 2
    result = read(written(tmp_path, "\n".join(second)), "--cluster", str(cluster))
    assert isinstance(result.exception, SpecError)
    assert f"is there several times, in several {mixed}" in str(result.exception)
    assert cluster.read_text() == CLUSTER
