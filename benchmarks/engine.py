"""How fast the engine trains on one GPU, beside plain PyTorch and Megatron-Core, in one run; and on two GPUs.

    PYTHONPATH=src python benchmarks/engine.py                        # one GPU
    PYTHONPATH=src python benchmarks/engine.py --two                  # and data-parallel efficiency on two
    PYTHONPATH=src python benchmarks/engine.py --device cpu --tiny    # whether it runs at all

Every section is a process of its own (its memory is its own, its failure stops no other) and prints its line when
it is done. TFLOP/s are (6 P + 12 L h s) x tokens/s (Narayanan et al. 2021, without recompute, attention's matrices
counted as if not causal). Tokens are random, so the loss means nothing here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from wirecost.breakdown import Phase
from wirecost.fabric.launch import free_port
from wirecost.spec import DataParallel, Experiment, Plan, Precision, Workload, validate
from wirecost.spec.experiment import Optimizer, Scaling
from wirecost.spec.fabric import Fabric
from wirecost.spec.presets import named
from wirecost.train.engine import Engine, build_engine
from wirecost.train.models.blocks import VocabularyLoss

VOCABULARY = 50304
"""GPT-2's 50,257 up to a multiple of 128, as every fast trainer has it; the same for all sides."""

MICRO_BATCHES = {"gpt-2-medium": 16, "gpt-2-large": 8}
CLIPPING = 1.0
LAUNCH_BOUND = 0.9
"""From this part of an iteration on that the host takes to issue it, the host is what limits it."""

RESULT = "RESULT "
Iteration = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Result:
    """`iteration_ms` of each timed iteration; `issue_ms` is the host's time to issue one to an idle device."""

    name: str
    iteration_ms: list[float]
    issue_ms: float
    tokens: int  # of one rank in an iteration
    flop_per_token: float
    peak_gib: float | None
    off_ms: list[float] = dataclasses.field(default_factory=list)  # measuring off

    @property
    def median_ms(self) -> float:
        return statistics.median(self.iteration_ms)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.median_ms * 1e3

    def line(self, baseline: Result | None) -> str:
        parts = [
            f"{self.name:<34} {self.median_ms:8.1f} ms {self.tokens_per_s:9.0f} tok/s "
            f"{self.tokens_per_s * self.flop_per_token / 1e12:6.1f} TFLOP/s",
        ]
        if self.peak_gib is None:  # a CPU's own work is no launch
            parts.append("peak unknown")
        else:
            parts += [f"peak {self.peak_gib:.1f} GiB", f"host issues in {self.issue_ms:.1f} ms"]
            if self.issue_ms >= LAUNCH_BOUND * self.median_ms:
                parts.append("launch-bound")
        if baseline is not None:
            parts.append(f"{self.tokens_per_s / baseline.tokens_per_s:.3f}x plain PyTorch")
        if self.off_ms:
            off = statistics.median(self.off_ms)
            parts.append(f"measuring costs {100 * (self.median_ms / off - 1):+.2f} % (off: {off:.1f} ms)")
        return ", ".join(parts)


def workload_of(model: str, *, tiny: bool) -> Workload:
    found = validate(Workload, named("workload", model), model)
    changes: dict[str, Any] = {"vocab_size": VOCABULARY}
    if tiny:
        changes = {"vocab_size": 256, "layers": 2, "hidden": 32, "heads": 2, "sequence_length": 32}
    return found.model_copy(update=changes)


def flop_per_token(workload: Workload, parameters: int) -> float:
    return 6 * parameters + 12 * workload.layers * workload.hidden * workload.sequence_length


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
    """What one writes without an engine."""

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


class Section:
    """What every section shares: its arguments, device, batches and the timing."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.cuda = arguments.device == "cuda"
        self.device = torch.device("cuda", self.rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        torch.manual_seed(self.rank)
        self.workload = workload_of(arguments.model, tiny=arguments.tiny)
        self.micro_batch: int = arguments.micro_batch
        shape = (4, self.micro_batch, self.workload.sequence_length + 1)
        batches = torch.randint(0, self.workload.vocab_size, shape)
        self.batches = [{"inputs": b[:, :-1], "targets": b[:, 1:]} for b in batches]
        self.step = 0

    def next_batch(self) -> dict[str, torch.Tensor]:
        """In the host's memory."""
        self.step += 1
        return self.batches[self.step % len(self.batches)]

    def batch_on_device(self) -> dict[str, torch.Tensor]:
        batch = {name: tensor.contiguous() for name, tensor in self.next_batch().items()}
        if self.cuda:
            batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, iteration: Iteration, count: int) -> list[float]:
        """Milliseconds of `count` iterations in a row, from device event to device event; the host runs ahead."""
        if not self.cuda:
            times = []
            for _ in range(count):
                start = time.perf_counter()
                iteration()
                times.append((time.perf_counter() - start) * 1e3)
            return times
        self.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            iteration()
            event.record()
        self.synchronize()
        return [one.elapsed_time(two) for one, two in itertools.pairwise(events)]

    def issue_ms(self, iteration: Iteration) -> float:
        found = []
        for _ in range(3):
            self.synchronize()
            start = time.perf_counter()
            iteration()
            found.append((time.perf_counter() - start) * 1e3)
        self.synchronize()
        return statistics.median(found)

    def result(self, name: str, iteration: Iteration, parameters: int) -> Result:
        for _ in range(self.arguments.warmup):
            iteration()
        times = self.timed(iteration, self.arguments.iterations)
        return self.made(name, times, iteration, parameters)

    def made(
        self, name: str, times: list[float], iteration: Iteration, parameters: int, off: Sequence[float] = ()
    ) -> Result:
        return Result(
            name=name,
            iteration_ms=times,
            issue_ms=self.issue_ms(iteration),
            tokens=self.micro_batch * self.workload.sequence_length,
            flop_per_token=flop_per_token(self.workload, parameters),
            peak_gib=torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None,
            off_ms=list(off),
        )


def baseline(section: Section) -> Result:
    """Plain PyTorch: autocast, torch.compile, fused AdamW, gradient clipping."""
    model = PlainGPT(section.workload).to(section.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if section.arguments.compile:
        model.compile()

    def iteration() -> None:
        batch = section.batch_on_device()
        with torch.autocast(section.device.type, dtype=torch.bfloat16):
            loss = model(batch["inputs"], batch["targets"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIPPING)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return section.result("plain PyTorch", iteration, sum(p.numel() for p in model.parameters()))


class NoClock:
    """Measures nothing."""

    def now(self) -> None:
        return None

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
            recorder.resolve(marks)

    def unmeasured(self) -> None:
        # Outside an iteration a recorder notes nothing down.
        self.engine.recorder.clock = NoClock()
        self.engine.iteration(self.engine.on_device([self.section.next_batch()]))


def ours(section: Section) -> Result:
    """The engine, alone or as a data-parallel group; in blocks with measuring and without, in turn."""
    arguments = section.arguments
    plan = Plan(
        name="speed",
        data_parallel=DataParallel(arguments.plan),
        precision=Precision.BF16,
        compile=arguments.compile,
    )
    experiment = Experiment(
        workload=section.workload,
        plan=plan,
        fabric=validate(Fabric, named("fabric", "loopback"), "fabric"),
        scaling=Scaling.WEAK,
        hosts=1,
        ranks_per_host=section.world,
        global_batch=section.micro_batch * section.world,
        micro_batch=section.micro_batch,
        optimizer=Optimizer(learning_rate=1e-4, gradient_clipping=CLIPPING),
    )
    engine = build_engine(experiment, section.device)
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
    for _ in range(-(-arguments.iterations // block)):
        on += section.timed(loop.measured, block)
        off += section.timed(loop.unmeasured, block)
    ranks = f", {section.world} ranks {arguments.plan}" if section.world > 1 else ""
    return section.made(f"engine, {arguments.loss} loss{ranks}", on, loop.measured, parameters, off)


def megatron(section: Section) -> Result:
    """Megatron-Core's GPT of its local layer spec, BF16 weights; fused AdamW and clipping as the others."""
    from megatron.core import parallel_state, tensor_parallel  # pyright: ignore[reportMissingImports]
    from megatron.core.models.gpt import GPTModel  # pyright: ignore[reportMissingImports]
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # pyright: ignore[reportMissingImports]
    from megatron.core.transformer import TransformerConfig  # pyright: ignore[reportMissingImports]

    workload = section.workload
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=workload.layers,
        hidden_size=workload.hidden,
        num_attention_heads=workload.heads,
        bf16=True,
        params_dtype=torch.bfloat16,
        attention_dropout=0.0,
        hidden_dropout=0.0,
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

    def iteration() -> None:
        batch = section.batch_on_device()
        model(batch["inputs"], positions, mask, labels=batch["targets"]).float().mean().backward()
        nn.utils.clip_grad_norm_(parameters, CLIPPING)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return section.result("Megatron-Core, local spec", iteration, sum(p.numel() for p in parameters))


SECTIONS = {"baseline": baseline, "ours": ours, "megatron": megatron}


@contextlib.contextmanager
def process_group(device: str) -> Iterator[None]:
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def run_section(arguments: argparse.Namespace) -> None:
    section = Section(arguments)
    with process_group(arguments.device):
        found = SECTIONS[arguments.section](section)
    if section.rank == 0:
        print(RESULT + json.dumps(dataclasses.asdict(found)), flush=True)


def launch(
    arguments: argparse.Namespace, deadline: float, section: str, *extra: str, ranks: int = 1
) -> Result | None:
    """Runs a section in processes of its own; None where it failed or time ran out, which it says."""
    label = f"{section} {' '.join(extra)}"
    if time.monotonic() >= deadline:
        print(f"{label}: skipped, no time left", flush=True)
        return None
    command = [
        sys.executable, str(Path(__file__).resolve()), "--section", section, "--device", arguments.device,
        "--iterations", str(arguments.iterations), "--warmup", str(arguments.warmup), *extra,
        *(["--tiny"] if arguments.tiny else []), *([] if arguments.compile else ["--no-compile"]),
    ]  # fmt: skip
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
    }
    if arguments.device == "cpu":
        environment["OMP_NUM_THREADS"] = "1"
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(ranks)]
        running = [
            subprocess.Popen(
                command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=log, stderr=log
            )
            for rank, log in enumerate(logs)
        ]  # fmt: skip
        try:
            while any(p.poll() is None for p in running) and not any(p.returncode for p in running):
                if time.monotonic() >= deadline:
                    print(f"{label}: cut, no time left", flush=True)
                    return None
                time.sleep(0.05)
        finally:
            for process in running:
                process.kill()
                process.wait()
        texts = []
        for log in logs:
            log.seek(0)
            texts.append(log.read().splitlines())
        for process, lines in zip(running, texts, strict=True):
            if process.returncode > 0:
                print("\n    ".join([f"{label}: failed", *lines[-8:]]), flush=True)
                return None
    found = [line for line in texts[0] if line.startswith(RESULT)]
    if not found:
        print(f"{label}: failed without a word", flush=True)
        return None
    return Result(**json.loads(found[0].removeprefix(RESULT)))


def run(arguments: argparse.Namespace) -> None:
    """What matters most comes first, in case that time runs out."""
    deadline = time.monotonic() + arguments.seconds
    first, *others = arguments.loss.split(",")
    models = arguments.models.split(",")
    plain: dict[str, Result | None] = {}
    alone: dict[str, Result | None] = {}

    def show(
        model: str, section: str, *extra: str, micro_batch: int | None = None, ranks: int = 1
    ) -> Result | None:
        if section in arguments.skip:
            return None
        size = micro_batch or (2 if arguments.tiny else MICRO_BATCHES[model])
        of_model = ("--model", model, "--micro-batch", str(size))
        found = launch(arguments, deadline, section, *of_model, *extra, ranks=ranks)
        if found is not None:
            compared = plain.get(model) if ranks == 1 and micro_batch is None else None
            print(f"{model} x {size}: {found.line(compared)}", flush=True)
        return found

    for model in models:
        plain[model] = show(model, "baseline")
        alone[model] = show(model, "ours", "--loss", first)
    for model in models:
        for loss in others:
            show(model, "ours", "--loss", loss)
    for model in models if arguments.two else ():
        one = alone[model]
        for plan in ("ddp", "zero1"):
            both = show(model, "ours", "--plan", plan, "--loss", first, ranks=2)
            if one is not None and both is not None:
                efficiency = both.tokens_per_s / one.tokens_per_s
                print(f"{model}: data-parallel efficiency of {plan} {100 * efficiency:.1f} %", flush=True)
    if importlib.util.find_spec("megatron") is None:
        print("Megatron-Core is not installed: not measured", flush=True)
        arguments.skip.add("megatron")
    for model in models:
        show(model, "megatron")
    for model in models if "micro-1" not in arguments.skip else ():
        show(model, "ours", "--loss", first, micro_batch=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default="gpt-2-medium,gpt-2-large")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--skip", default="", help="of baseline, ours, megatron, micro-1; with commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--two", action="store_true", help="also two GPUs")
    parser.add_argument("--tiny", action="store_true", help="a model for checking that everything runs")
    parser.add_argument(
        "--loss", default="plain,fused", help="the engine's: plain, fused; all but the first alone only"
    )
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--seconds", type=float, default=200, help="for everything; what is left then is skipped")
    for inner in ("--section", "--model"):
        parser.add_argument(inner, help=argparse.SUPPRESS)
    parser.add_argument("--plan", default="all_reduce", help=argparse.SUPPRESS)
    parser.add_argument("--micro-batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.section:
        run_section(arguments)
        return
    arguments.skip = set(arguments.skip.split(","))
    run(arguments)


if __name__ == "__main__":
    main()
