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
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_a_real_prometheus_scrapes_it(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus program here (Debian package 'prometheus')")
    monitor_port, port = free_port(), free_port()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "wirecost", "static_configs": [{"targets": [f"127.0.0.1:{monitor_port}"]}]},
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    server = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    server += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]

    def value(query: str) -> float | None:
        address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
        result = json.loads(get(address))["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    monitor = [sys.executable, "-m", "wirecost", "monitor", "-q", "--prometheus", str(monitor_port)]
    start = loopback_bytes()
    with running(monitor), running(server):
        up = eventually(lambda: value("up{job='wirecost'}"), lambda v: v == 1)
        sent = eventually(
            lambda: value("wirecost_transmit_bytes_total{device='lo',kind='ethernet'}"), lambda v: bool(v)
        )
        load = eventually(lambda: value("wirecost_softirq_cores"), lambda v: v is not None)
    assert up == 1
    # The scrapes themselves went over lo: something was counted, and not more than lo carried in all.
    assert sent is not None and 0 < sent <= loopback_bytes() - start
    assert load is not None and load >= 0
