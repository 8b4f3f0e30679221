"""A real Prometheus scrapes a real monitor."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from wirecost.counters import Event, Row
from wirecost.counters.prometheus import PrometheusExporter

pytest.importorskip("prometheus_client", reason="needs the extra 'monitor'")

LIMIT_S = 60


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def eventually(ask, until):
    """Asks until the answer satisfies, or the limit passes; the last answer either way."""
    end, answer = time.monotonic() + LIMIT_S, None
    while time.monotonic() < end:
        try:
            answer = ask()
            if until(answer):
                return answer
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.1)
    return answer


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def loopback_bytes() -> int:
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def test_exporter_speaks_the_text_format() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    port = free_port()
    with running([sys.executable, "-m", "wirecost", "monitor", "-q", "--prometheus", str(port)]):
        page = eventually(lambda: get(f"http://127.0.0.1:{port}/metrics"), lambda text: "softirq_cores{" in text)
    assert page is not None
    families = {f.name: f for f in text_string_to_metric_families(page)}
    received = {s.labels["device"]: s.value for s in families["wirecost_receive_bytes"].samples}
    assert families["wirecost_receive_bytes"].type == "counter"
    assert received["lo"] >= 0
    assert families["wirecost_softirq_cores"].samples[0].labels == {"kind": "cpu", "device": "softirq"}


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """A real Prometheus that scrapes a port of this machine; the address of its API."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus program here (Debian package 'prometheus')")
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "wirecost", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    server = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    server += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with running(server):
        yield f"http://127.0.0.1:{port}/api/v1"


def results(api: str, query: str) -> list[float]:
    address = f"{api}/query?query={urllib.parse.quote(query)}"
    return [float(r["value"][1]) for r in json.loads(get(address))["data"]["result"]]


@pytest.mark.slow
def test_a_real_prometheus_scrapes_it(tmp_path: Path) -> None:
    monitor_port = free_port()
    monitor = [sys.executable, "-m", "wirecost", "monitor", "-q", "--prometheus", str(monitor_port)]
    start = loopback_bytes()
    with prometheus(tmp_path, monitor_port) as api, running(monitor):

        def value(query: str) -> float | None:
            return next(iter(results(api, query)), None)

        up = eventually(lambda: value("up{job='wirecost'}"), lambda v: v == 1)
        sent = eventually(
            lambda: value("wirecost_transmit_bytes_total{device='lo',kind='ethernet'}"), lambda v: bool(v)
        )
        load = eventually(lambda: value("wirecost_softirq_cores"), lambda v: v is not None)
    assert up == 1
    # The scrapes themselves went over lo: something was counted, and not more than lo carried in all.
    assert sent is not None and 0 < sent <= loopback_bytes() - start
    assert load is not None and load >= 0


def _rows(count: int) -> list[Row]:
    now = time.monotonic_ns()
    events = tuple(Event(name, count) for name in ("out_of_sequence", "np_cnp_sent", "port_xmit_wait"))
    return [
        Row(now, now, "infiniband", "mlx5_0/1", count, count, link_Bps=5e10),
        Row(now, now, "rdma", "mlx5_0/1", link_Bps=5e10, events=events),
        Row(
            now,
            now,
            "cpu",
            "softirq",
            softirq_cores=0.1,
            softirq_busiest_core=0.2,
            net_rx_per_s=3.0,
            net_tx_per_s=4.0,
        ),
    ]


@pytest.mark.slow
def test_every_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    """With the variables as Grafana fills them in: all hosts, all devices."""
    text = (files("wirecost.counters") / "grafana.json").read_text(encoding="utf-8")
    for variable, filled in (("$instance", ".*"), ("$device", ".*"), ("$__rate_interval", "10s")):
        assert variable in text
        text = text.replace(variable, filled)
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    assert len(queries) >= 9
    exporter = PrometheusExporter(0)
    try:
        with prometheus(tmp_path, exporter.port) as api:
            count = 0

            def answers() -> dict[str, list[float]]:
                nonlocal count
                count += 1000
                exporter.write(_rows(count))
                return {query: results(api, query) for query in queries}

            last = eventually(answers, lambda of: all(of.values()))
    finally:
        exporter.close()
    assert last is not None and all(last.values()), [query for query, found in (last or {}).items() if not found]
