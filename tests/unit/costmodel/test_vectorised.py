"""The vectorised path and the scalar path are the same code and give the same numbers."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from support.model import made
from wirecost.costmodel.inputs import Layout
from wirecost.costmodel.iteration import iterate, iterate_memory
from wirecost.costmodel.shape import shape_of
from wirecost.prediction.predict import predict


@pytest.mark.parametrize(
    "stack", ["megatron-lm-2021", "megatron-deepspeed", "fsdp-flash", "megatron-core", "engine-cuda"]
)
@pytest.mark.parametrize("workload", ["gpt-3.6b", "t5-large", "mixtral-8x7b"])
def test_each_element_is_what_the_scalar_path_says(stack: str, workload: str) -> None:
    setup = made(workload, "selene", gpus=8, stack=stack)
    machine, shape = predict(setup).machine, shape_of(setup.workload)
    draw = np.random.default_rng(1)
    count = 200

    def pick(*values: float) -> np.ndarray:
        return draw.choice(np.array(values, dtype=float), count)

    many = Layout(
        tensor=pick(1, 2, 4, 8, 16),
        pipeline=pick(1, 2, 4),
        data=pick(1, 2, 8, 32),
        micro_batch=pick(1, 2, 3, 8),
        accumulation=pick(1, 4, 16),
        virtual=pick(1, 2),
        context=pick(1, 2),
        expert=pick(1, 2),
        sharding=pick(0, 1, 2, 3),
        bucketed=pick(0, 1),
        bucket_bytes=pick(1e5, 25 * 2**20, 1e12),
        node_sharding=pick(0, 1),
        sequence_parallel=pick(0, 1),
        recompute=pick(0, 1, 2),
        gpipe=pick(0, 1),
    )
    times = np.broadcast_to(iterate(shape, many, machine).total_s, count)
    sizes = np.broadcast_to(iterate_memory(shape, many, machine).total, count)
    assert np.isfinite(times).all()
    assert (times > 0).all()
    for index in range(count):
        values = {f.name: getattr(many, f.name) for f in fields(Layout)}
        one = Layout(**{k: float(v[index]) if isinstance(v, np.ndarray) else v for k, v in values.items()})
        assert float(iterate(shape, one, machine).total_s) == pytest.approx(times[index], rel=1e-12)
        assert float(iterate_memory(shape, one, machine).total) == pytest.approx(sizes[index], rel=1e-12)
