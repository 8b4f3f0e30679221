"""The Python API: `import wirecost` is quick, every function answers as the command does, every result has views."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import wirecost
from support.tracefiles import make_job
from wirecost.api.view import ResultView

CODE = """
import sys, wirecost
print(sum(name.startswith('wirecost') for name in sys.modules), 'numpy' in sys.modules)
"""
TCP_LOG = """\
alpha:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
alpha:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
"""


def views(result: ResultView) -> None:
    """Asserts that every view of a result works."""
    for table in result.tables:
        rows = result.rows(table)
        frame = result.to_polars(table)
        assert isinstance(frame, pl.DataFrame)
        assert frame.height == len(rows) == len(result.to_pandas(table))
    assert json.loads(result.chart().to_json())["$schema"]
    html = result._repr_html_()
    assert html.startswith("<p>")
    assert "<script" not in html
    assert str(result)
    with pytest.raises(wirecost.WirecostError, match="unknown table 'nonsense'"):
        result.rows("nonsense")


def test_importing_loads_nothing_else() -> None:
    out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) <= 3
    assert out[1] == "False"


def test_every_public_name_is_there_and_documented() -> None:
    assert len(wirecost.__all__) > 20
    for name in wirecost.__all__:
        value = getattr(wirecost, name)
        assert name == "__version__" or value.__doc__, name
    assert dir(wirecost) == sorted(wirecost.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        wirecost.nonsense  # noqa: B018


def test_a_prediction() -> None:
    result = wirecost.predict("llama-3-8b", cluster="dgx-h100", gpus=64)
    views(result)
    assert result.interval_ms is not None
    low, high = result.interval_ms
    assert low < result.iteration_ms < high
    assert 0 < result.comm_fraction < 1
    assert sum(row["time_ms"] for row in result.rows()) == pytest.approx(result.iteration_ms, rel=1e-6)
    assert sum(row["bytes"] for row in result.rows("memory")) == pytest.approx(result.memory_bytes)
    assert result.fits
    assert result.largest_micro_batch
    assert result.mfu < 1 < result.tokens_per_s


def test_specifications_are_taken_as_they_are() -> None:
    by_name = wirecost.predict("gpt-2-medium", cluster="dgx-h100", gpus=16, data_parallel="ddp")
    setup = by_name.prediction.setup
    again = wirecost.predict(
        setup.workload, cluster=setup.cluster, plan=setup.plan, stack=setup.stack, gpus=16, micro_batch=1
    )
    assert again.iteration_ms == by_name.iteration_ms
    shorter = wirecost.predict(
        setup.workload, cluster="dgx-h100", gpus=16, data_parallel="ddp", sequence_length=128
    )
    assert shorter.iteration_ms < by_name.iteration_ms


def test_a_sweep_and_a_need() -> None:
    sweep = wirecost.sweep("llama-3-8b", "gpus=8..64", cluster="dgx-h100")
    views(sweep)
    assert [row["value"] for row in sweep.rows()] == [8, 16, 32, 64]
    need = wirecost.need("llama-3-70b", cluster="dgx-h100", gpus=256, data_parallel="zero3", fraction=0.2)
    views(need)
    assert need.value is not None
    assert need.comm_fraction <= 0.2


@pytest.mark.parametrize(
    ("gpus", "bandwidth", "words"),
    [
        (64, None, "is reached already with"),
        (64, "50 Gb/s", "communication needs"),
        (8, None, "needs no network"),
    ],
)
def test_a_need_says_how_it_compares_with_now(gpus: int, bandwidth: str | None, words: str) -> None:
    need = wirecost.need(
        "llama-3-8b", cluster="dgx-h100", gpus=gpus, data_parallel="zero3", bandwidth=bandwidth, fraction=0.5
    )
    assert words in str(need)


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(wirecost.WirecostError, match="unknown quantity 'latency'"):
        wirecost.need("llama-3-8b", of="latency", cluster="dgx-h100")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a cluster is needed"),
        ({"cluster": "dgx-h1000"}, "did you mean 'dgx-h100'"),
        ({"cluster": "dgx-h100", "gpu": 8}, "unknown option 'gpu'"),
        ({"cluster": "dgx-h100", "bandwidth": "fast"}, "bandwidth"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(wirecost.WirecostError, match=message) as refusal:
        wirecost.predict("llama-3-8b", **options)
    assert "\n" not in str(refusal.value)


def test_traces(tmp_path: Path) -> None:
    for made in make_job(2, 4, seed=3):
        (tmp_path / f"rank{made.rank}.json").write_bytes(made.text)
    traces = wirecost.read_traces(tmp_path, timeline=True, jobs=1)
    views(traces)
    assert traces.iteration_ms
    assert traces.answer.lines[0][1] in str(traces)
    traces.write_html(str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").stat().st_size > 1000
    loaded = wirecost.load(str(tmp_path))
    assert isinstance(loaded, wirecost.BreakdownView)
    views(loaded)
    assert loaded.iteration_ms == traces.iteration_ms
    same = wirecost.compare(traces, tmp_path)
    views(same)
    assert same.speedup == 1.0
    with pytest.raises(wirecost.WirecostError, match="step_time"):
        wirecost.read_traces(tmp_path, step_time="238 bananas")


def test_logs(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(TCP_LOG)
    view = wirecost.read_logs(tmp_path / "log")
    views(view)
    assert view.transport == "tcp"
    assert view.reason is None
    assert view.rows()[0]["transport"] == "tcp"


def test_a_table_of_measurements(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    head = "id,n_layers,hidden,n_heads,seq,vocab,gpu,n_gpus,tp,pp,dp,mbs,global_batch,iter_s,link"
    table.write_text(f"{head}\na,24,2048,16,2048,51200,A100-80GB,8,1,1,8,4,64,2.0,nvlink\n")
    view = wirecost.validate(table, cluster="selene")
    views(view)
    assert view.mean_absolute_error is not None


def test_a_benchmark() -> None:
    result = wirecost.bench("all_reduce", smallest=1024, largest="4K", factor=2, iterations=2, warmup=1)
    views(result)
    assert {row["size_bytes"] for row in result.rows()} == {1024, 2048, 4096}
    assert result.bus_bandwidth_GBps
