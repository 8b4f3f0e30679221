"""The Grafana dashboard asks for what the exporter gives, and for all of it."""

from __future__ import annotations

import json
import re
import urllib.request
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest

from wirecost.counters import Event, Row
from wirecost.counters.rdma_events import Group

pytest.importorskip("prometheus_client", reason="needs the extra 'monitor'")

DASHBOARD: dict[str, Any] = json.loads((files("wirecost.counters") / "grafana.json").read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
NAME = re.compile(r"\bwirecost_\w+")
ADDED_BY_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def samples() -> list[Any]:
    """What the exporter serves of one row of each kind."""
    from prometheus_client.parser import text_string_to_metric_families

    from wirecost.counters.prometheus import PrometheusExporter

    rows = [
        Row(1, 1, "infiniband", "mlx5_0/1", 1, 2, link_Bps=5e10),
        Row(1, 1, "rdma", "mlx5_0/1", link_Bps=5e10, events=(Event("out_of_sequence", 3), Event("port_xmit_wait", 4))),
        Row(
            1, 1, "cpu", "softirq",
            softirq_cores=0.1, softirq_busiest_core=0.2, net_rx_per_s=3.0, net_tx_per_s=4.0,
        ),
    ]  # fmt: skip
    exporter = PrometheusExporter(0)
    try:
        exporter.write(rows)
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as response:
            text = response.read().decode()
    finally:
        exporter.close()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_every_metric_of_the_dashboard_is_one_of_the_exporter(samples: list[Any]) -> None:
    served = {s.name for s in samples}
    variables = [v["definition"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    asked = {name for text in (*QUERIES, *variables) for name in NAME.findall(text)}
    assert asked and asked <= served
    assert asked == served, "a metric that no panel shows"


def test_every_label_of_the_dashboard_is_one_of_its_metric(samples: list[Any]) -> None:
    labels = {}
    for sample in samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    checked = 0
    for query in QUERIES:
        for name, selector in re.findall(r"(wirecost_\w+)\{([^}]*)\}", query):
            names = set(re.findall(r"(\w+)=", selector))
            assert names <= labels[name] | ADDED_BY_PROMETHEUS, query
            checked += len(names)
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            of = set().union(*(labels[name] for name in NAME.findall(target["expr"])))
            assert names <= of | ADDED_BY_PROMETHEUS, target["legendFormat"]
            checked += len(names)
    assert checked > 20


def test_the_groups_of_the_dashboard_are_those_of_the_counters() -> None:
    asked = {g for query in QUERIES for found in re.findall(r'group=~?"([^"]*)"', query) for g in found.split("|")}
    assert asked == {str(group) for group in Group}


def test_no_link_rate_is_served_twice(samples: list[Any]) -> None:
    links = [s for s in samples if s.name == "wirecost_link_bytes_per_second"]
    assert [s.labels["kind"] for s in links] == ["infiniband"]
    events = {s.labels["counter"]: (s.labels["group"], s.value) for s in samples if "rdma_events" in s.name}
    assert events == {"out_of_sequence": ("lost", 3), "port_xmit_wait": ("wait", 4)}


def test_panels_are_titled_placed_and_of_any_data_source() -> None:
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels) > 5
    for panel in panels:
        assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for a, b in combinations([p["gridPos"] for p in panels], 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert (apart_x or apart_y) and a["x"] + a["w"] <= 24
    assert DASHBOARD["uid"] == "wirecost-monitor" and DASHBOARD["schemaVersion"] >= 36
