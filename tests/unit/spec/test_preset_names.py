"""Presets are found by the names that people type, and every machine among them is predicted with an interval."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wirecost.calibration.inputs.columns import CannotExpressError
from wirecost.calibration.inputs.row_machine import find_gpu, link_named, usual_link
from wirecost.cli import application
from wirecost.errors import SpecError
from wirecost.prediction.job import setup_of
from wirecost.prediction.predict import predict
from wirecost.spec import Cluster, Provenance, load_spec, validate
from wirecost.spec.presets import INLINE, KINDS, names, plain, preset_name


@pytest.mark.parametrize(
    ("kind", "typed", "name"),
    [
        ("gpu", "a10", "A10-PCIe-24GB"),
        ("gpu", "NVIDIA A10", "A10-PCIe-24GB"),
        ("gpu", "h20-96gb", "H20-SXM-96GB"),
        ("gpu", "4090", "RTX-4090"),
        ("gpu", "rtx 4090", "RTX-4090"),
        ("gpu", "mi300", "MI300X"),
        ("gpu", "TPU v5p", "TPU-v5p"),
        ("gpu", "gaudi2", "Gaudi2"),
        ("gpu", "910b", "Ascend-910B"),
        ("cluster", "p5.48xlarge", "aws-p5-48xlarge"),
        ("cluster", "tpu-v5p", "tpu-v5p-pod"),
        ("cluster", "A3-Mega", "gcp-a3-mega"),
        ("cluster", "Standard_ND96isr_H100_v5", "azure-nd-h100-v5"),
        ("cluster", "BM.GPU.H100.8", "oci-h100"),
        ("cluster", "NVL72", "gb200-nvl72"),
        ("cluster", "dgx a100", "dgx-a100-80gb"),
        ("link", "TCP 2.5G", "tcp-2.5g"),
        ("link", "tcp-25g", "tcp-25g"),
        ("workload", "Llama 3 8B", "llama-3-8b"),
        # What separates two digits counts: 13b isn't 1.3b.
        ("workload", "gpt-13b", None),
        ("gpu", "A1", None),
        ("gpu", "", None),
        ("plan", "DDP", "ddp"),
        ("study", "demo ", None),
    ],
)
def test_names_that_people_type(kind: str, typed: str, name: str | None) -> None:
    assert preset_name(kind, typed) == name


@pytest.mark.parametrize("kind", INLINE)
def test_no_two_presets_share_a_name(kind: str) -> None:
    owners: dict[str, str] = {}
    for name in names(kind):
        for each in (name, *getattr(load_spec(kind, name), "aliases", ())):
            assert plain(each)
            assert owners.setdefault(plain(each), name) == name, each
    assert len(owners) >= len(names(kind)) > 0


@pytest.mark.parametrize("name", names("gpu"))
def test_every_gpu_has_figures_in_their_range_and_usual_links(name: str) -> None:
    spec = load_spec("gpu", name)
    assert 8e9 <= spec.memory_bytes <= 300e9
    assert 3e11 <= spec.memory_bandwidth_Bps <= 8e12
    # A product of this many operations for each byte is bound by the memory's bandwidth: 24 to 1,000 on hardware.
    assert 24 <= max(spec.peak_flops.values()) / spec.memory_bandwidth_Bps <= 2000
    ordered = [spec.peak_flops[key] for key in ("fp32", "bf16", "fp8", "fp4") if key in spec.peak_flops]
    assert ordered == sorted(ordered)
    for kind in ("intra", "inter"):
        assert link_named(usual_link(spec, kind)).rate > 0


@pytest.mark.parametrize("name", names("cluster"))
def test_every_cluster_is_predicted_with_an_interval_by_its_provenance(name: str) -> None:
    cluster = load_spec("cluster", name)
    assert cluster.source
    gpus = 2 * cluster.gpus_per_node
    job = predict(setup_of("gpt-2-medium", {"cluster": name, "gpus": gpus}))
    assert job.setup.plan.precision == ("bf16" if "bf16" in cluster.accelerator.peak_flops else "fp16")
    interval = job.breakdown.interval
    assert interval is not None
    half_width = math.log(interval.high_ns / interval.low_ns) / 2
    unmeasured = not cluster.accelerator.is_measured
    assert half_width > (0.19 if unmeasured else 0.03)
    assert ("uncalibrated_gpu" in {d.code for d in job.breakdown.diagnostics}) == unmeasured


@pytest.mark.parametrize("name", ["tpu-v5p", "trn2", "gaudi3", "910b"])
def test_no_stack_of_a_gpu_counts_as_measured_on_another_accelerator(name: str) -> None:
    job = predict(setup_of("gpt-2-medium", {"cluster": name, "gpus": 16}))
    assert job.setup.stack.name == "generic"
    codes = {d.code for d in job.breakdown.diagnostics}
    assert {"uncalibrated_stack", "uncalibrated_gpu"} <= codes
    interval = job.breakdown.interval
    assert interval is not None
    assert math.log(interval.high_ns / interval.low_ns) / 2 > 0.4


def test_machines_that_nobody_measured_do_not_count_as_measured() -> None:
    unmeasured = [
        "A10", "A30", "L4", "L40S", "4090", "3090", "RTX PRO 6000", "A6000", "A800", "H800", "H20", "MI250X GCD",
        "MI325X", "MI350X", "Gaudi 3", "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "Trainium",
        "Trainium 2", "Ascend 910B", "T4",
    ]  # fmt: skip
    for name in unmeasured:
        assert load_spec("gpu", name).provenance is not Provenance.MEASURED, name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A10", "A10-PCIe-24GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A10G", "A10G-24GB"),
        ("8xH100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA H200 141GB", "H200-SXM-141GB"),
        ("NVIDIA H20 96GB", "H20-SXM-96GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4 24GB", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("Tesla T4 (16 GB)", "T4"),
        ("AMD Instinct MI300X VF", "MI300X"),
    ],
)
def test_gpus_of_tables_are_found_in_longer_names(text: str, name: str) -> None:
    assert find_gpu(text).name == name


@pytest.mark.parametrize("text", ["GT430", "A1000 laptop", "H2000", "abacus"])
def test_a_longer_number_is_another_gpu(text: str) -> None:
    with pytest.raises(CannotExpressError, match="unknown gpu"):
        find_gpu(text)


@pytest.mark.parametrize("kind", INLINE)
def test_the_command_in_the_message_for_an_unknown_name_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match=f"unknown {kind} 'nowhere'") as refusal:
        load_spec(kind, "nowhere")
    message = str(refusal.value)
    assert "\n" not in message
    monkeypatch.chdir(tmp_path)
    commands = re.search(r"as in: (.*)$", message)
    assert commands
    for command in commands[1].split("; "):
        words = shlex.split(command)
        file = words[words.index(">") + 1] if ">" in words else None
        result = CliRunner().invoke(application(), words[1 : words.index(">") if file else None])
        assert result.exit_code == 0, result.output
        if file:
            Path(file).write_text(result.stdout)
        else:
            assert "90% interval" in result.stdout
            assert "Provenance: GPU" in result.stdout


def test_parts_in_place_of_names_count_as_judgement() -> None:
    gpu = {"memory_bytes": 10**10, "memory_bandwidth_Bps": 1e12, "peak_flops": {"bf16": 1e14}}
    data = {
        "name": "mine", "gpu": gpu, "gpus_per_node": 2, "nodes": 2, "intra_node": "pcie4",
        "inter_node": {"rate": "25 Gb/s"},
    }  # fmt: skip
    cluster = validate(Cluster, data, "mine")
    for part in (cluster.accelerator, cluster.inter_node):
        assert part.provenance is Provenance.JUDGEMENT
        assert part.name == "inline"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "{gpu: nowhere, gpus_per_node: 8, nodes: 1, intra_node: pcie4, inter_node: tcp-10g}",
            "cluster in braces: gpu: unknown gpu 'nowhere'",
        ),
        ("{gpu: A10, gpus_per_node: 2", "cluster in braces:1"),
        ("{[", "cluster in braces:1"),
        ("{a: 1, a: 2}", "appears twice"),
        ("{}", "cluster in braces: gpu, gpus_per_node, nodes, intra_node, inter_node: are missing"),
    ],
)
def test_descriptions_in_braces_that_are_none(given: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        load_spec("cluster", given)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_messages_for_unknown_names_stay_short() -> None:
    kinds = [kind for kind in KINDS if names(kind)]
    assert kinds
    for kind in kinds:
        with pytest.raises(SpecError if kind in INLINE else Exception) as refusal:
            load_spec(kind, "x" * 5000)
        assert len(str(refusal.value)) < 1500
