"""Where a model's first weights are drawn."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from wirecost.spec import Plan, Workload, validate
from wirecost.spec.presets import named

torch = pytest.importorskip("torch")

from support.parity import experiment  # noqa: E402
from wirecost.train.models import check_room, drawing_device  # noqa: E402

WORKLOAD = validate(Workload, named("workload", "gpt-2-medium"), "workload")
WEIGHTS_BYTES = 4 * 354_823_168


def machine(monkeypatch: pytest.MonkeyPatch, memory_bytes: int, *names: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    properties = SimpleNamespace(total_memory=memory_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def test_a_processor_draws_its_own() -> None:
    assert isinstance(drawing_device(WORKLOAD, torch.device("cpu")), nullcontext)


@pytest.mark.parametrize(
    ("memory_bytes", "names", "on_the_gpu"),
    [
        (4 * WEIGHTS_BYTES, ("NVIDIA H200", "NVIDIA H200"), True),
        (4 * WEIGHTS_BYTES - 1, ("NVIDIA H200", "NVIDIA H200"), False),
        (100 * WEIGHTS_BYTES, ("NVIDIA H200", "NVIDIA H100 80GB HBM3"), False),
    ],
)
def test_a_gpu_draws_where_the_whole_model_has_room_and_all_gpus_draw_alike(
    monkeypatch: pytest.MonkeyPatch, memory_bytes: int, names: tuple[str, ...], on_the_gpu: bool
) -> None:
    machine(monkeypatch, memory_bytes, *names)
    device = torch.device("cuda", 0)
    assert (drawing_device(WORKLOAD, device) is device) is on_the_gpu


def test_a_host_that_cannot_hold_the_weights_of_its_ranks_draws_none() -> None:
    trained = experiment(Plan(name="ddp"), WORKLOAD, 2)
    cpu = torch.device("cpu")
    check_room(trained, cpu, 2 * WEIGHTS_BYTES)
    check_room(trained, cpu, None)
    with pytest.raises(
        MemoryError, match=r"unable to allocate 2\.64 GiB on a host of 2\.64 GiB: each of its 2 ranks"
    ):
        check_room(trained, cpu, 2 * WEIGHTS_BYTES - 1)
