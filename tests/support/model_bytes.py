"""The bytes of the cost model by operation and group, against which those of the engine are held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from wirecost.costmodel import collectives
from wirecost.costmodel.collectives import Group
from wirecost.costmodel.iteration import iterate
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.numbers import Number
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shape import shape_of
from wirecost.spec import Experiment, load_spec, stack_named

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PARTS = {
    "tensor_parallel": "tensor",
    "data_parallel": "data",
    "sharding": "data",
    "replication": "data",
    "expert_sharding": "data",
    "expert_data_parallel": "data",
    "expert_parallel": "expert",
}
"""The part of the model of each of the engine's groups."""
SILENT = ("host_forward_s", "host_backward_s", "host_vocabulary_s", "host_collective_s", "iteration_s")
Bytes = Counter[tuple[str, str]]


def predicted_bytes(case: Experiment) -> Bytes:
    """Returns the bytes of an iteration by operation and part of the model."""
    cluster = load_spec("cluster", "dgx-h100")
    cluster = cluster.model_copy(update={"gpus_per_node": case.ranks_per_host, "nodes": case.hosts})
    stack = stack_named("engine-cpu").with_values(dict.fromkeys(SILENT, 0.0))
    made = setup(
        case.workload, case.plan, cluster, stack=stack, gpus=case.ranks,
        micro_batch=case.micro_batch, global_batch=case.global_batch,
    )  # fmt: skip
    machine = machine_of(cluster, made.stack, case.plan.precision)
    machine = replace(machine, peak_flops=1e60, attention_peak_flops=1e60, memory_Bps=1e60)
    sent: Bytes = Counter()
    for wanted in OPERATIONS:

        def seconds(
            op: str,
            _: Number,
            size_bytes: Number,
            members: Group,
            message_bytes: Number = np.inf,
            of: str = wanted,
        ) -> Number:
            return size_bytes * members.several if op == of else 0.0

        # A byte of the operation takes a second, and nothing else takes any time.
        with patch.object(collectives, "measured_s", seconds):
            times = iterate(shape_of(case.workload), layout_of(made), machine)
        data = times.gradient_s - times.partial_gradient_s + times.parameter_s + times.hidden_comm_s
        parts = {
            "tensor": times.tensor_s + times.partial_gradient_s,
            "data": data,
            "expert": times.context_expert_s,
        }
        for part, spent_s in parts.items():
            assert abs(float(spent_s) - round(float(spent_s), 1)) < 1e-3  # mean over ranks: a part of a byte
            sent[wanted, part] = round(float(spent_s) * case.ranks)
    return +sent


def recorded_bytes(calls_of_ranks: Iterable[Iterable[tuple[str, str, int, int]]]) -> Bytes:
    """Returns the bytes that all ranks recorded in an iteration, by operation and part of the model."""
    sent: Bytes = Counter()
    for calls in calls_of_ranks:
        for op, group, _, size_bytes in calls:
            sent[op, PARTS[group]] += size_bytes
    return sent
