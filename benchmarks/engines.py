"""Runs one model by several training stacks over the same networks, on two GPUs.

    PYTHONPATH=src python benchmarks/engines.py --out DIR [--seconds 540] [--networks nvlink,emulated-10g]
    PYTHONPATH=src python benchmarks/engines.py --list

The stacks are those of the study `engines`: wirecost's own engine, Megatron-Core, Hugging Face with FSDP2, and
torchtitan 0.2. A stack that isn't installed is left out, with the reason. Beside wirecost and PyTorch they need
megatron-core and triton; transformers, tokenizers, safetensors, huggingface_hub, regex, PyYAML; torchtitan,
torchdata, datasets, dill, xxhash, multiprocess, fsspec, tyro, docstring_parser, typeguard, einops, tomli,
tensorboard, protobuf, absl-py. It prints each stack's iteration over each network, the share of exposed
communication, and the ratio to NVLink. Experiments that the time doesn't suffice for are left to another call with
the same DIR.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wirecost.breakdown import ratio_of_medians
from wirecost.errors import WirecostError
from wirecost.spec import Study, plan_name, validate, workload_name
from wirecost.spec.presets import named
from wirecost.study import Again, Result, Status, run_study

NEEDED = {"megatron": "megatron-core", "hugging": "transformers", "torchtitan": "torchtitan"}
"""Packages that stacks need, by the first part of their workloads' names."""
TOKENS_IN_BATCH = 4 * 1024
"""Tokens of one rank's iteration: 4 sequences of 1024."""


def study_of(networks: str | None) -> tuple[Study, list[str]]:
    """Returns the study of the stacks that are installed, and a line for each that isn't."""
    data = named("study", "engines")
    left_out = []
    for entry in list(data["workloads"]):
        name = entry["name"] if isinstance(entry, dict) else entry
        package = NEEDED.get(name.split("-")[0])
        if package is None:
            continue
        try:
            version(package)
        except PackageNotFoundError:
            data["workloads"].remove(entry)
            left_out.append(f"{name}: {package} is not installed")
    for entry in data["workloads"]:
        if isinstance(entry, dict) and "command" in entry:
            entry["command"] = entry["command"].replace("python", sys.executable, 1)
    if networks:
        data["networks"] = networks.split(",")
    return validate(Study, data, "engines"), left_out


def show(results: list[Result]) -> None:
    times: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        e = result.experiment
        times.setdefault((workload_name(e), plan_name(e)), {})[e.network.name] = result
    print(f"{'stack':<20} {'plan':<12} {'network':<14} {'ms':>8} {'tokens/s':>9} {'exposed':>8} {'ratio':>6}")
    for (stack, plan), by_network in times.items():
        reference = next((r for r in by_network.values() if r.breakdown is not None), None)
        for network, result in by_network.items():
            head = f"{stack:<20} {plan:<12} {network:<14}"
            b = result.breakdown
            time = b.iteration_ns() if b else None
            if b is None or time is None or reference is None or reference.breakdown is None:
                print(f"{head} {result.outcome.status}: {result.outcome.reason}")
                continue
            share = b.share("exposed_comm_ns")
            ratio = ratio_of_medians(b.iteration_times_ns(), reference.breakdown.iteration_times_ns())
            tokens_per_s = TOKENS_IN_BATCH * b.world_size / (time.median * 1e-9)
            shown = "unknown" if share is None else share.text(0)
            against = "" if ratio is None else f"{ratio.value:.2f}"
            print(f"{head} {time.median * 1e-6:8.1f} {tokens_per_s:9,.0f} {shown:>8} {against:>6}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("engines"), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=540, help="time for this call")
    parser.add_argument("--networks", help="networks, with commas, instead of the study's")
    parser.add_argument("--list", action="store_true", help="show the experiments, and start nothing")
    options = parser.parse_args()
    study, left_out = study_of(options.networks)
    for line in left_out:
        print(f"left out: {line}")
    if options.list:
        for experiment in study.experiments():
            print(experiment.slug)
        return 0
    resume = (options.out / "study.yaml").exists()
    try:
        results = run_study(
            study, options.out, resume=resume, again=Again(failed=resume), budget_s=options.seconds
        )
    except WirecostError as error:
        print(f"engines: {error}", file=sys.stderr)
        return 2
    show(results)
    return 0 if results and all(r.outcome.status is Status.DONE for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
