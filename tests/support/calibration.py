"""Runs as the engine would keep them if the model were true, for tests of what is calibrated on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wirecost.breakdown import Breakdown, Iteration, Parts, Source
from wirecost.costmodel.setup import setup
from wirecost.prediction.predict import predict
from wirecost.spec import Cluster, Experiment, Stack, Study, to_yaml
from wirecost.spec.presets import named
from wirecost.study.store import Outcome, Status

ENVIRONMENT = {"processor": "Abacus 9", "cores": 1, "machine_cores": 2, "memory_bytes": 8 << 30, "gpus": []}
TRUTH = Stack.model_validate(
    named("stack", "engine-cpu") | {"host_forward_s": 9e-4, "host_backward_s": 1.4e-3, "optimizer_bytes": 20}
)
MACHINE = Cluster.model_validate(
    {
        "name": "true",
        "gpu": {
            "name": "cpu",
            "architecture": "cpu",
            "memory_bytes": 8 << 30,
            "memory_bandwidth_Bps": 10e9,
            "peak_flops": {"fp32": 70e9},
            "matrix_efficiency": 1.0,
            "memory_efficiency": 1.0,
            "source": "made up",
        },
        "gpus_per_node": 1,
        "nodes": 4,
        "intra_node": "shared-memory",
        "inter_node": {
            "name": "slow",
            "rate": "100 Mb/s",
            "efficiency": 1.0,
            "half_rate_bytes": 1.0,
            "latency": "300 us",
            "latency_per_step": "1 us",
            "source": "made up",
        },
        "shared_cores": {"count": 2, "threads": 1, "shared_by": "all", "source": "made up"},
    }
)
RATE_BPS = 100e6


def workload(layers: int, hidden: int) -> dict[str, Any]:
    return {
        "name": f"w{layers}x{hidden}", "layers": layers, "hidden": hidden, "heads": 4, "vocab_size": 2048,
        "sequence_length": 128,
    }  # fmt: skip


def experiment(layers: int, hidden: int, micro_batch: int, hosts: int = 1, **changes: Any) -> Experiment:
    return Experiment.model_validate(
        {
            "workload": workload(layers, hidden),
            "plan": named("plan", "all-reduce"),
            "network": named("network", "emulated-100m"),
            "scaling": "weak",
            "hosts": hosts,
            "global_batch": micro_batch * hosts,
            "micro_batch": micro_batch,
            **changes,
        }
    )


def measured(one: Experiment, factor: float = 1.0, **changes: Any) -> Breakdown:
    """Returns what the engine would measure if the model were true. Runs of one rank use one core."""
    count = 1 if one.ranks == 1 else 2
    assert MACHINE.shared_cores is not None
    machine = MACHINE.model_copy(update={"shared_cores": MACHINE.shared_cores.model_copy(update={"count": count})})
    made = setup(
        one.workload, one.plan, machine, stack=TRUTH, gpus=one.ranks,
        micro_batch=one.micro_batch, global_batch=one.global_batch,
    )  # fmt: skip
    found = predict(made).breakdown
    times = {k: round(v * factor) for k, v in found.iterations[0].phases.items() if v}
    total = sum(times.values())
    exposed = min(round(found.iterations[0].parts.exposed_comm_ns * factor), total)
    parts = Parts(
        window_ns=total, compute_only_ns=total - exposed, overlapped_ns=0, exposed_comm_ns=exposed,
        exposed_memory_ns=0, idle_ns=0,
    )  # fmt: skip
    iterations = tuple(
        Iteration(rank=rank, name=str(i), parts=parts, phases=times) for rank in range(one.ranks) for i in range(3)
    )
    return Breakdown(
        source=Source.MEASURED, title=one.slug, world_size=one.ranks, iterations=iterations, **changes
    )


def keep(root: Path, one: Experiment, breakdown: Breakdown) -> Path:
    folder = root / "experiments" / one.slug
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(to_yaml(one))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "breakdown.json").write_text(breakdown.model_dump_json())
    (folder / "status.json").write_text(Outcome(status=Status.DONE).model_dump_json())
    return folder


def bench(
    path: Path,
    hosts: int,
    network: str = "emulated-100m",
    *,
    inside: bool = False,
    slower: float = 1.0,
    **changes: Any,
) -> Path:
    """Writes a benchmark between `hosts` hosts, or `inside` one host with as many ranks, and returns its path.

    `slower` is a factor over the true rate's time.
    """
    rows = [
        {
            "collective": "all_reduce", "size_bytes": size, "count": size // 4, "dtype": "float", "redop": "sum",
            "root": None, "mode": "in_place", "ranks": hosts, "algbw_Bps": None, "busbw_Bps": None,
            "time_ns": (2 * (hosts - 1) / hosts * size * 8 / RATE_BPS + 3e-4) * 1e9 * slower,
        }
        for size in (2**k for k in range(17, 25))
    ]  # fmt: skip
    document = {
        "format_version": 1,
        "request": {
            "hosts": 1 if inside else hosts, "ranks_per_host": hosts if inside else 1,
            "groups": [list(range(hosts))], "backend": "gloo",
            "network": {"name": network} | ({"inside": True} if inside else {"emulate": {"rate": "100 Mb/s"}}),
        },
        "network": {"name": network, "emulated": not inside, "nominal_rate_bps": None if inside else RATE_BPS},
        "rows": rows,
        "fits": [],
    } | changes  # fmt: skip
    path.write_text(json.dumps(document))
    return path


STUDY = Study.model_validate(
    {
        "name": "s",
        "workloads": [workload(4, 256)],
        "networks": ["emulated-100m", "emulated-1g"],
        "plans": ["all-reduce", "ddp", "all-reduce-bf16"],
        "hosts": [2],
        "scaling": [{"kind": "weak", "micro_batch": 4}],
    }
)
