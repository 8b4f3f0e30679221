"""The messages of the cost model for ZeRO-3, against which those of the engine are held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from wirecost.costmodel.dataparallel import Cover, data_parallel
from wirecost.costmodel.host_launch import unit_gathers
from wirecost.costmodel.inputs import LinkCosts, Machine
from wirecost.costmodel.iteration import held_parameters
from wirecost.costmodel.machine import machine_of
from wirecost.costmodel.setup import layout_of, setup
from wirecost.costmodel.shape import shape_of
from wirecost.costmodel.sharding import expert_blocks
from wirecost.spec import Experiment, load_spec, stack_named
from wirecost.spec.cluster import Cluster

PADDING = 0.005
"""FSDP2 pads the rows of a parameter to a multiple of the ranks, which the model doesn't."""
COLLECTIVES = ("all_gather", "reduce_scatter")


def assert_messages_of_the_model(case: Experiment, calls: Iterable[tuple[str, str, int, int]]) -> None:
    """Asserts that one rank gathered and scattered as often in an iteration as the cost model's formulas say, and
    as many bytes."""
    sent = [call for call in calls if call[0] in COLLECTIVES and call[1].endswith("sharding") and call[3] > 64]
    machine = _machine(case)
    checked = setup(
        case.workload, case.plan, _cluster(case), stack=machine.stack, gpus=case.ranks,
        micro_batch=case.micro_batch, global_batch=case.global_batch,
    )  # fmt: skip
    shape, layout = shape_of(case.workload), layout_of(checked)
    layers = shape.layers + shape.decoder_layers
    gathers = unit_gathers(layers, shape, machine.stack.data_parallel, expert_blocks(layers, shape, layout))
    assert Counter(op for op, *_ in sent)["all_gather"] == layout.accumulation * gathers

    def seconds(intra: LinkCosts, rate_Bps: float) -> float:
        parameters = held_parameters(layers, shape, layout)
        link = replace(machine, intra=intra, intra_Bps=rate_Bps)
        return float(data_parallel(parameters, Cover(0.0, 0.0), layout, link).total_s)

    # If each message takes a second and its bytes take no time, the seconds are the number of messages.
    assert seconds(LinkCosts(1.0, 1.0, 0.0, 0.0), 1e30) == pytest.approx(len(sent))
    # If each byte takes a second and a message takes no other time, the seconds are the bytes that a ring sends.
    ring_bytes = sum(size * (ranks - 1) / ranks for _, _, ranks, size in sent)
    model_bytes = seconds(LinkCosts(1.0, 0.0, 0.0, 0.0), 1.0)
    assert 0 <= round(ring_bytes / model_bytes - 1, 9) <= PADDING


def _cluster(case: Experiment) -> Cluster:
    return load_spec("cluster", "dgx-h100").model_copy(update={"gpus_per_node": case.ranks, "nodes": 1})


def _machine(case: Experiment) -> Machine:
    machine = machine_of(_cluster(case), stack_named("engine-cpu"), case.plan.precision)
    return replace(machine, curves=())
