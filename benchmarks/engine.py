"""Compares the engine's training speed on one and two GPUs with plain PyTorch and Megatron-Core in one run.

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
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch.distributed as dist
from engine_sides import SECTIONS
from engine_timing import Result, Section

from wirecost.launch.ports import free_port

MICRO_BATCHES = {"gpt-2-medium": 16, "gpt-2-large": 8}
RESULT = "RESULT "


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
        result = SECTIONS[arguments.section](section)
    if section.rank == 0:
        print(RESULT + json.dumps(dataclasses.asdict(result)), flush=True)


def launch(
    arguments: argparse.Namespace,
    deadline: float,
    section: str,
    *extra: str,
    ranks: int = 1,
    gpu: int | None = None,
) -> Result | None:
    """Runs a section in separate processes; prints the reason and returns None if it failed or time ran out.

    `gpu` limits the section to one GPU of the machine.
    """
    label = f"{section} {' '.join(extra)}"
    if time.monotonic() >= deadline:
        print(f"{label}: skipped, no time left", flush=True)
        return None
    command = [
        sys.executable, str(Path(__file__).resolve()), "--section", section, "--device", arguments.device,
        "--iterations", str(arguments.iterations), "--warmup", str(arguments.warmup),
        "--bucket-mib", str(arguments.bucket_mib), *extra,
        *(["--tiny"] if arguments.tiny else []), *([] if arguments.compile else ["--no-compile"]),
    ]  # fmt: skip
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # as the engine's ranks have it
    }
    if arguments.device == "cpu":
        environment["OMP_NUM_THREADS"] = "1"
    elif gpu is not None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
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
    result_lines = [line for line in texts[0] if line.startswith(RESULT)]
    if not result_lines:
        print(f"{label}: failed without a word", flush=True)
        return None
    return Result(**json.loads(result_lines[0].removeprefix(RESULT)))


def on_both(arguments: argparse.Namespace, deadline: float, section: str, *extra: str) -> list[Result | None]:
    """Runs a section alone on each GPU at the same time: the speed of two ranks without communication."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda gpu: launch(arguments, deadline, section, *extra, gpu=gpu), range(2)))


def run(arguments: argparse.Namespace) -> None:
    """Runs the sections. The most important ones come first, in case that time runs out."""
    deadline = time.monotonic() + arguments.seconds
    first, *others = arguments.loss.split(",")
    models = arguments.models.split(",")
    plain: dict[str, Result | None] = {}

    def show(
        model: str, section: str, *extra: str, micro_batch: int | None = None, ranks: int = 1
    ) -> Result | None:
        if section in arguments.skip:
            return None
        size = micro_batch or (2 if arguments.tiny else MICRO_BATCHES[model])
        of_model = ("--model", model, "--micro-batch", str(size))
        result = launch(arguments, deadline, section, *of_model, *extra, ranks=ranks)
        if result is not None:
            compared = plain.get(model) if ranks == 1 and micro_batch is None else None
            print(f"{model} x {size}: {result.line(compared)}", flush=True)
        return result

    for model in models:
        plain[model] = show(model, "baseline")
        show(model, "ours", "--loss", first)
    for model in models:
        for loss in others:
            show(model, "ours", "--loss", loss)
    for model in models if arguments.two else ():

        def efficiency(of: str, apart: list[Result], both: Result | None, model: str = model) -> None:
            if len(apart) == 2 and both is not None:
                mean = statistics.mean(result.tokens_per_s for result in apart)
                slower = min(result.tokens_per_s for result in apart)
                print(
                    f"{model}: data-parallel efficiency of {of} {100 * both.tokens_per_s / mean:.1f} % of the two "
                    f"GPUs' mean, {100 * both.tokens_per_s / slower:.1f} % of the slower one's alone",
                    flush=True,
                )

        def apart(section: str, *extra: str, model: str = model) -> list[Result]:
            size = 2 if arguments.tiny else MICRO_BATCHES[model]
            of_model = ("--model", model, "--micro-batch", str(size))
            results = on_both(arguments, deadline, section, *of_model, *extra)
            for gpu, result in enumerate(results):
                if result is not None:
                    print(f"{model} x {size}, both GPUs at once, {gpu}: {result.line(None)}", flush=True)
            return [result for result in results if result is not None]

        both = apart("ours", "--loss", first)
        for plan in ("ddp", "zero1"):
            efficiency(plan, both, show(model, "ours", "--plan", plan, "--loss", first, ranks=2))
        if "baseline" not in arguments.skip:
            both = apart("baseline")
            efficiency("plain PyTorch's DDP", both, show(model, "baseline", ranks=2))
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
    parser.add_argument("--bucket-mib", type=float, default=25, help="of gradients, on two GPUs")
    arguments = parser.parse_args()
    if arguments.section:
        run_section(arguments)
        return
    arguments.skip = set(arguments.skip.split(","))
    run(arguments)


if __name__ == "__main__":
    main()
