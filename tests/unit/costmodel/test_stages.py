"""An iteration's stages, and the machine that they read."""

from __future__ import annotations

import inspect
from dataclasses import astuple, fields

import pytest

from support.model import made, predicted
from wirecost.costmodel import iteration, stages
from wirecost.costmodel.inputs import HostTimes, Machine
from wirecost.costmodel.iteration import iterate
from wirecost.costmodel.layers import ends_time, layers_time
from wirecost.costmodel.setup import layout_of
from wirecost.costmodel.shape import shape_of
from wirecost.prediction.predict import predict
from wirecost.spec import stack_named


def test_a_slower_host_takes_longer_in_everything_that_it_launches() -> None:
    engine = stack_named("engine-cuda")
    measured = engine.with_values({"host_sequence_collective_s": 1e-4, "host_transfer_s": 2e-4})
    host = HostTimes.of(measured.host)
    slower = host.times(2.0)
    assert astuple(slower) == tuple(2.0 * value for value in astuple(host))
    assert len(fields(HostTimes)) == 10
    plain = HostTimes.of(engine.host).times(2.0)
    assert (plain.sequence_collective_s, plain.transfer_s) == (None, None)


def test_a_slowed_machine_computes_slower_and_its_network_stays() -> None:
    machine = predict(made(gpus=16)).machine
    slower = machine.slowed(4.0)
    factors = {"peak_flops": 1 / 4, "attention_peak_flops": 1 / 4, "memory_Bps": 1 / 4, "once_s": 4.0}
    names = [field.name for field in fields(Machine)]
    assert factors.keys() | {"host"} <= set(names)
    assert {name: getattr(slower, name) for name in factors} == {
        name: getattr(machine, name) * factor for name, factor in factors.items()
    }
    same = [name for name in names if name not in factors and name != "host"]
    assert [name for name in same if getattr(slower, name) != getattr(machine, name)] == []


@pytest.mark.parametrize("workload", ["gpt-2-medium", "t5-large", "mixtral-8x7b"])
def test_a_stage_of_one_has_all_layers_and_both_ends(workload: str) -> None:
    setup = made(workload, gpus=8, micro_batch=2, tensor_parallel=2, data_parallel="ddp")
    shape, layout, machine = shape_of(setup.workload), layout_of(setup), predict(setup).machine
    layers = layers_time(shape, layout, machine)
    ends = ends_time(layers, shape, layout, machine)
    assert float(layers.count) == setup.workload.layers + (setup.workload.decoder_layers or 0)
    times = iterate(shape, layout, machine)
    busy = float(layers.forward_s + layers.backward_s + ends.first_s + ends.last_s)
    contention = float(times.compute_s + times.host_s + times.tensor_s + times.context_expert_s) - busy
    assert contention == pytest.approx(0, abs=1e-9)


def test_no_function_is_long() -> None:
    checked = 0
    for module in (iteration, stages):
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__:
                checked += 1
                assert len(inspect.getsource(function).splitlines()) <= 80, function.__name__
    assert checked > 8


def test_a_prediction_states_what_it_was_made_from() -> None:
    result = predicted(gpus=8)
    assert result.total_s == float(result.times.total_s)
    assert 0 <= result.comm_fraction < 1
    assert result.setup.gpus == 8
