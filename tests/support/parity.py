"""Trains experiments on ranks of this machine, without a network between them, and says what came of it.

`python -m support.parity DIRECTORY COMPILER` is all ranks. One start of the processes serves many experiments: most of a
small run's time goes into starting Python and torch. With WIRECOST_TEST_DEVICE=cuda in the environment each rank has
a GPU of its own and NCCL between them, in place of CPUs and gloo: the same tests on what counts.
"""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.forking import become_ranks
from wirecost.launch.ports import free_port
from wirecost.spec import DataParallel, Device, Experiment, Family, Plan, Workload, validate
from wirecost.spec.experiment import Optimizer, Scaling
from wirecost.spec.network import Network
from wirecost.spec.presets import named

DEVICE = Device(os.environ.get("WIRECOST_TEST_DEVICE", "cpu"))
STEPS = 5
MICRO_BATCH = 2
NETWORK = validate(Network, named("network", "loopback"), "network")
# Some tokens are frequent: there is something to learn, so that losses fall. All are below every family's special
# tokens.
TOKENS = np.minimum(np.random.default_rng(0).geometric(0.05, 20_000) - 1, 127).astype(np.uint16)

WORKLOADS = {
    Family.GPT: Workload(name="gpt", layers=4, hidden=32, heads=4, vocab_size=256, sequence_length=16),
    Family.BERT: Workload(
        name="bert", family=Family.BERT, layers=4, hidden=32, heads=4, vocab_size=251, sequence_length=16
    ),
    Family.T5: Workload(
        name="t5",
        family=Family.T5,
        layers=2,
        decoder_layers=2,
        hidden=32,
        heads=4,
        vocab_size=250,
        sequence_length=16,
        decoder_sequence_length=8,
        activation="relu",
        norm="rmsnorm",
        positions="relative",
        biases=False,
    ),
}
"""Small, and divisible by whatever two or four ranks ask for."""

LLAMA = Workload(
    name="llama",
    layers=2,
    hidden=32,
    heads=8,
    kv_heads=4,
    vocab_size=256,
    sequence_length=16,
    activation="swiglu",
    norm="rmsnorm",
    positions="rotary",
    biases=False,
    tied_embeddings=False,
)


@dataclass(frozen=True)
class Trained:
    """`losses` are the global batch's by iteration; `calls` each rank's (op, group, size, bytes) by iteration,
    `events` each rank's checkpoints and validations, `steps` how often each rank stepped its parameters, `scales`
    each rank's loss scale by iteration (FP16), `expert_rows` what each rank's experts computed by iteration."""

    losses: list[float]
    parameters: dict[str, torch.Tensor]
    calls: list[list[list[tuple[str, str, int, int]]]]
    events: list[list[dict[str, Any]]]
    steps: list[list[float]]
    scales: list[list[float]]
    expert_rows: list[list[int | None]]


@dataclass(frozen=True)
class Overflow:
    """One rank's gradient of one parameter (of a shard, under tensor parallelism) becomes infinite as backward
    makes it."""

    rank: int
    iteration: int


def experiment(plan: Plan, workload: Workload, ranks: int, **changes: Any) -> Experiment:
    """Returns an experiment with a global batch of 8 in micro-batches of MICRO_BATCH sequences, for any plan."""
    settings: dict[str, Any] = {
        "global_batch": 8,
        "micro_batch": MICRO_BATCH,
        # Gradients that are zero but for rounding (a key's bias) must not be blown up to whole steps.
        "optimizer": Optimizer(epsilon=1e-5),
        "hosts": 1,
        "ranks_per_host": ranks,
        "scaling": Scaling.STRONG,
        "iterations": STEPS,
        "warmup": 0,
        "device": DEVICE,
    }
    return Experiment(workload=workload, plan=plan, network=NETWORK, **settings | changes)


def train_all(
    experiments: Sequence[Experiment],
    folder: Path,
    checkpoints: Sequence[str | None] = (),
    overflows: Sequence[Overflow | None] = (),
    compiler: str = "inductor",
) -> list[Trained]:
    """Trains experiments of one number of ranks, one after another in the same processes.

    Args:
        checkpoints: the folder in `folder` that each experiment goes on from and writes to.
        overflows: what happens in each experiment.
        compiler: torch.compile's backend.
    """
    (ranks,) = {e.ranks for e in experiments}
    if DEVICE is Device.CUDA and ranks > torch.cuda.device_count():
        pytest.skip(f"needs_gpu: {ranks} GPUs")
    _launch(experiments, folder, checkpoints, overflows, compiler)
    found = []
    for number in range(len(experiments)):
        parts = [json.loads((folder / f"{number}-{rank}.json").read_text()) for rank in range(ranks)]
        by_iteration = zip(*(p["losses"] for p in parts), strict=True)
        known = [[loss for loss in losses if loss is not None] for losses in by_iteration]
        found.append(
            Trained(
                losses=[sum(losses) / len(losses) for losses in known],
                parameters=torch.load(folder / f"{number}.pt", weights_only=True),
                calls=[[[tuple(c) for c in calls] for calls in p["calls"]] for p in parts],
                events=[p["events"] for p in parts],
                steps=[p["steps"] for p in parts],
                scales=[p["scales"] for p in parts],
                expert_rows=[p["expert_rows"] for p in parts],
            )
        )
    return found


def _launch(
    experiments: Sequence[Experiment],
    folder: Path,
    checkpoints: Sequence[str | None] = (),
    overflows: Sequence[Overflow | None] = (),
    compiler: str = "inductor",
) -> None:
    (folder / "experiments.json").write_text(json.dumps([e.model_dump(mode="json") for e in experiments]))
    (folder / "checkpoints.json").write_text(json.dumps([*checkpoints, *[None] * len(experiments)]))
    happening = [overflow and vars(overflow) for overflow in overflows]
    (folder / "overflows.json").write_text(json.dumps([*happening, *[None] * len(experiments)]))
    environment = {
        **os.environ,
        "WORLD_SIZE": str(experiments[0].ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # a pool of processes would outlive the rank
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
    }
    try:
        run = subprocess.run(
            [sys.executable, "-m", "support.parity", str(folder), compiler],
            env=environment, capture_output=True, text=True, timeout=60 + 15 * len(experiments), check=False,
        )  # fmt: skip
        said = run.stdout + run.stderr if run.returncode else ""
    except subprocess.TimeoutExpired as error:
        said = f"hangs: {error}"
    if said and DEVICE is Device.CUDA and len(experiments) > 1 and not any(checkpoints):
        said = _each_alone(experiments)
    assert not said, said


def _each_alone(experiments: Sequence[Experiment]) -> str:
    """Returns the errors of all experiments that also fail by themselves, because runs on GPUs are expensive."""
    errors = []
    for experiment in experiments:
        with tempfile.TemporaryDirectory() as folder:
            try:
                _launch([experiment], Path(folder))
            except AssertionError as error:
                lines = str(error).splitlines()
                errors.append("\n".join([f"{experiment.plan!r} of {experiment.workload.name}:", *lines[-25:]]))
    return "\n\n".join(errors) or "together they fail, each alone does not"


@functools.cache
def reference(family: Family) -> Trained:
    """Returns the result of training the family's workload in one process."""
    plan = Plan(name="alone", data_parallel=DataParallel.ALL_REDUCE)
    with tempfile.TemporaryDirectory() as folder:
        return train_all([experiment(plan, WORKLOADS[family], 1)], Path(folder))[0]


def assert_same(trained: Trained, expected: Trained) -> None:
    """Parameters and losses agree to what another order of FP32 sums explains."""
    for number, (loss, right) in enumerate(zip(trained.losses, expected.losses, strict=True)):
        assert abs(loss - right) <= 1e-5 * abs(right), f"loss {loss} of iteration {number} is not {right}"
    assert trained.parameters.keys() == expected.parameters.keys()
    for name, value in trained.parameters.items():
        torch.testing.assert_close(
            value, expected.parameters[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


class Watch:
    """One rank's engine: notes down the loss scale after each iteration, and lets an overflow happen."""

    def __init__(self, rank: int, overflow: Overflow | None) -> None:
        self.overflow = overflow if overflow is not None and overflow.rank == rank else None
        self.engine: Any = None
        self.scales: list[float] = []
        self._begun = -1

    def on_engine(self, engine: Any) -> None:
        self.engine = engine
        self._train = engine.iteration
        engine.iteration = self._iteration
        if self.overflow is not None:
            split = engine.groups.tensor.size > 1
            parameter = next(p for p in engine.model.parameters() if not split or hasattr(p, "tensor_dim"))
            parameter.register_hook(self._gradient)

    def _iteration(self, micro_batches: Any) -> Any:
        self._begun += 1
        loss = self._train(micro_batches)
        if self.engine.stepper.scale is not None:
            self.scales.append(float(self.engine.stepper.scale.value))
        return loss

    def _gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        assert self.overflow is not None
        return gradient * math.inf if self._begun == self.overflow.iteration else gradient


def _compile_with(compiler: str) -> None:
    if hasattr(torch.compiler, "set_default_backend"):
        torch.compiler.set_default_backend(compiler)
    else:  # before PyTorch 2.12
        torch.compile = functools.partial(torch.compile, backend=compiler)


class ProcessGroups:
    """Hands an experiment the process groups of those before it: making one takes NCCL about a second. Within an
    experiment every call gets a group of its own."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._made: dict[tuple[int, ...], list[Any]] = {}
        self._taken: dict[tuple[int, ...], int] = {}

    def begin(self) -> None:
        """Another experiment."""
        self._taken.clear()

    def __call__(self, ranks: Sequence[int], **options: Any) -> Any:
        of = tuple(ranks)
        made, taken = self._made.setdefault(of, []), self._taken.get(of, 0)
        if taken == len(made):
            made.append(self._make(list(ranks), **options))
        self._taken[of] = taken + 1
        return made[taken]


def _rank(folder: Path, compiler: str) -> None:
    import torch.distributed as dist

    from wirecost.train.groups import communication_options
    from wirecost.train.loop import TrainedIteration, train
    from wirecost.train.periodic import TrainedEvent
    from wirecost.train.state import full_parameters

    # PyTorch is loaded once, for every rank.
    rank = become_ranks(int(os.environ["WORLD_SIZE"]))
    torch.set_num_threads(1)
    _compile_with(compiler)
    if DEVICE is Device.CUDA:
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", rank=rank, device_id=device, pg_options=communication_options("nccl"))
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", rank=rank)
    dist.new_group = groups = ProcessGroups(dist.new_group)
    checkpoints = json.loads((folder / "checkpoints.json").read_text())
    overflows = json.loads((folder / "overflows.json").read_text())
    for number, settings in enumerate(json.loads((folder / "experiments.json").read_text())):
        groups.begin()
        torch._dynamo.reset()  # otherwise code that was compiled for many experiments is run without compiling
        watch = Watch(rank, Overflow(**overflows[number]) if overflows[number] else None)
        where = checkpoints[number]
        everything = list(
            train(
                Experiment.model_validate(settings),
                TOKENS,
                device,
                checkpoints=folder / where if where else None,
                on_engine=watch.on_engine,
            )
        )
        done = [d for d in everything if isinstance(d, TrainedIteration)]
        result = {
            "events": [vars(d) for d in everything if isinstance(d, TrainedEvent)],
            "losses": [d.loss for d in done],
            "steps": sorted({float(s["step"]) for s in watch.engine.stepper.optimizer.state()}),
            "scales": watch.scales,
            "expert_rows": [d.sample.expert_rows for d in done],
            "calls": [
                [(c.op, c.group, len(c.ranks), c.size_bytes) for c in d.sample.communications] for d in done
            ],
        }
        (folder / f"{number}-{rank}.json").write_text(json.dumps(result))
        parameters = full_parameters(watch.engine)
        if rank == 0:
            torch.save(parameters, folder / f"{number}.pt")
    dist.barrier()
    if DEVICE is Device.CUDA:
        dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), sys.argv[2])
