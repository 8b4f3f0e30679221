"""The timed sides: plain PyTorch, wirecost's engine, Megatron-Core. Each trains the same GPT on the
same batches.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from engine_timing import CLIPPING, Result, Section
from torch import nn
from torch.nn import functional

from wirecost.breakdown import Phase
from wirecost.spec import DataParallel, Experiment, Plan, Precision, Workload, validate
from wirecost.spec.experiment import Optimizer, Scaling
from wirecost.spec.network import Network
from wirecost.spec.presets import named
from wirecost.train.clock import Clock
from wirecost.train.engine import Engine, build_engine
from wirecost.train.models.blocks import VocabularyLoss
from wirecost.train.recorder import Sample


class PlainLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """A GPT in plain PyTorch, as written without an engine."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        self.positions = nn.Embedding(workload.sequence_length, workload.hidden)
        self.layers = nn.ModuleList(PlainLayer(workload.hidden, workload.heads) for _ in range(workload.layers))
        self.norm = nn.LayerNorm(workload.hidden)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def baseline(section: Section) -> Result:
    """Times plain PyTorch: autocast, torch.compile, fused AdamW, gradient clipping; DistributedDataParallel on two
    GPUs.
    """
    model: nn.Module = PlainGPT(section.workload).to(section.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if section.arguments.compile:
        model.compile()
    if section.world > 1:
        model = nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=section.arguments.bucket_mib
        )

    def iteration() -> None:
        batch = section.batch_on_device()
        with torch.autocast(section.device.type, dtype=torch.bfloat16):
            loss = model(batch["inputs"], batch["targets"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIPPING)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    ranks = f", {section.world} ranks DDP" if section.world > 1 else ""
    return section.result(f"plain PyTorch{ranks}", iteration, sum(p.numel() for p in model.parameters()))


class NoClock:
    """A clock that measures nothing. Collectives return the same values as with the clock that it replaces."""

    asynchronous = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def after(self, work: Any, group: str, record_end: Callable[[], None]) -> None:
        record_end()

    def value_after(
        self, work: Any, group: str, record_end: Callable[[], None], value: Any
    ) -> torch.futures.Future[Any]:
        return self.clock.value_after(work, group, record_end, value)

    def now(self) -> None:
        return None

    def make_replayable(self) -> None:
        pass

    def join(self) -> None:
        pass

    def has_happened(self, mark: object) -> bool:
        return True

    def wait(self, mark: object) -> None:
        pass

    def nanoseconds(self, marks: Sequence[object]) -> list[int]:
        return [0] * len(marks)


class Loop:
    """The training loop's steps around `Engine.iteration`, with measuring and without."""

    def __init__(self, section: Section, engine: Engine) -> None:
        self.section = section
        self.engine = engine
        self.clock = engine.recorder.clock
        self.in_flight: deque[tuple[Any, torch.Tensor]] = deque()
        self.samples: list[Sample] = []

    def measured(self) -> None:
        recorder = self.engine.recorder
        recorder.clock = self.clock
        recorder.begin()
        with recorder.phase(Phase.DATA):
            micro_batches = self.engine.on_device([self.section.next_batch()])
        loss = self.engine.iteration(micro_batches)
        assert loss is not None
        loss = loss.to("cpu", non_blocking=True)
        self.in_flight.append((recorder.finish(), loss))
        while self.in_flight and recorder.clock.has_happened(self.in_flight[0][0].end):
            marks, loss = self.in_flight.popleft()
            if not math.isfinite(float(loss)):
                raise RuntimeError(f"the loss is {float(loss)}")
            self.samples.append(recorder.resolve(marks))

    def phases_ms(self) -> dict[str, float]:
        """Returns the medians of the measured iterations' phases, and of the communication, in milliseconds."""
        medians_ms: dict[str, float] = {
            str(phase): statistics.median(s.phases.get(phase, 0) for s in self.samples) / 1e6
            for phase in self.samples[0].phases
        }
        medians_ms["communication"] = statistics.median(s.parts.comm_ns for s in self.samples) / 1e6
        return {name: value for name, value in medians_ms.items() if value >= 0.05}

    def unmeasured(self) -> None:
        # Outside an iteration a recorder notes nothing down.
        self.engine.recorder.clock = NoClock(self.clock)
        self.engine.iteration(self.engine.on_device([self.section.next_batch()]))


def experiment(section: Section, plan: Plan, micro_batches: int = 1) -> Experiment:
    """Returns an experiment with a plan on this host's ranks and `micro_batches` in each iteration."""
    return Experiment(
        workload=section.workload,
        plan=plan,
        network=validate(Network, named("network", "loopback"), "network"),
        scaling=Scaling.WEAK,
        hosts=1,
        ranks_per_host=section.world,
        global_batch=section.micro_batch * micro_batches * section.world // plan.model_parallel,
        micro_batch=section.micro_batch,
        optimizer=Optimizer(learning_rate=1e-4, gradient_clipping=CLIPPING),
    )


def ours(section: Section) -> Result:
    """Times the engine, alone or as a data-parallel group, in alternating blocks with and without measuring."""
    arguments = section.arguments
    plan = Plan(
        name="speed",
        data_parallel=DataParallel(arguments.plan),
        precision=Precision.BF16,
        compile=arguments.compile,
        bucket_bytes=round(arguments.bucket_mib * 2**20),
    )
    engine = build_engine(experiment(section, plan), section.device)
    for module in engine.model.modules():
        if isinstance(module, VocabularyLoss):
            module.fused, module.compiled = arguments.loss == "fused", arguments.compile
    parameters = sum(p.numel() for p in engine.model.parameters())
    loop = Loop(section, engine)
    for _ in range(arguments.warmup):
        loop.measured()
    loop.unmeasured()
    on: list[float] = []
    off: list[float] = []
    block = 3
    loop.samples.clear()
    for number in range(-(-arguments.iterations // block)):
        # What is first after a pause finds a cooler, faster GPU: each side is first as often.
        if number % 2:
            off += section.timed(loop.unmeasured, block)
        on += section.timed(loop.measured, block)
        if not number % 2:
            off += section.timed(loop.unmeasured, block)
    ranks = f", {section.world} ranks {arguments.plan}" if section.world > 1 else ""
    result = section.made(f"engine, {arguments.loss} loss{ranks}", on, loop.measured, parameters, off)
    return dataclasses.replace(result, phases_ms=loop.phases_ms())


@dataclasses.dataclass(frozen=True)
class MegatronIteration:
    """An iteration of Megatron-Core. `run(last)` trains a micro-batch, and makes the optimizer step after the last
    one.
    """

    run: Callable[[bool], None]
    parameters: int


def megatron_iteration(section: Section, tensor: int = 1) -> MegatronIteration:
    """Returns an iteration of Megatron-Core's GPT with its local layer spec.

    Its weights are BF16. It uses fused AdamW and gradient clipping, like the other sides.
    """
    from megatron.core import parallel_state, tensor_parallel  # pyright: ignore[reportMissingImports]
    from megatron.core.models.gpt import GPTModel  # pyright: ignore[reportMissingImports]
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # pyright: ignore[reportMissingImports]
    from megatron.core.transformer import TransformerConfig  # pyright: ignore[reportMissingImports]

    workload = section.workload
    parallel_state.initialize_model_parallel(tensor, create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=workload.layers,
        hidden_size=workload.hidden,
        num_attention_heads=workload.heads,
        bf16=True,
        params_dtype=torch.bfloat16,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        tensor_model_parallel_size=tensor,
    )
    model = GPTModel(
        config, get_gpt_layer_local_spec(), workload.vocab_size, workload.sequence_length,
        share_embeddings_and_output_weights=True,
    ).to(section.device, torch.bfloat16)  # fmt: skip
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    positions = torch.arange(workload.sequence_length, device=section.device).expand(section.micro_batch, -1)
    square = (workload.sequence_length, workload.sequence_length)
    mask = torch.ones(square, dtype=torch.bool, device=section.device).triu(1)[None, None]

    def run(last: bool) -> None:
        batch = section.batch_on_device()
        model(batch["inputs"], positions, mask, labels=batch["targets"]).float().mean().backward()
        if last:
            nn.utils.clip_grad_norm_(parameters, CLIPPING)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return MegatronIteration(run, sum(p.numel() for p in parameters))


def megatron(section: Section) -> Result:
    iteration = megatron_iteration(section)
    return section.result("Megatron-Core, local spec", lambda: iteration.run(True), iteration.parameters)


SECTIONS = {"baseline": baseline, "ours": ours, "megatron": megatron}
