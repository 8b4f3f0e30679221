"""The options that describe a job, shared by all commands that predict one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wirecost.cli.completion import presets_of

if TYPE_CHECKING:
    from wirecost.costmodel.setup import Setup
    from wirecost.prediction.job import JobOptions

WORKLOAD = typer.Argument(
    help="Workload: a preset, a YAML file, a Hugging Face config.json, or hf://ORG/NAME in the local cache.",
    show_default=False,
    autocompletion=presets_of("workload"),
)

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "cluster": (
        str,
        typer.Option(
            "--cluster",
            help="Cluster: a preset, a YAML file, or {its: keys}.",
            autocompletion=presets_of("cluster"),
        ),
    ),
    "gpus": (int, typer.Option("--gpus", help="Number of GPUs. By default all of the cluster.")),
    "micro_batch": (int, typer.Option("--micro-batch", help="Sequences in a micro-batch. By default 1.")),
    "global_batch": (int, typer.Option("--global-batch", "-B", help="Sequences in an iteration.")),
    "sequence_length": (int, typer.Option("--sequence-length", help="Tokens in a sequence.")),
    "data_parallel": (str, typer.Option("--data-parallel", help="all_reduce, ddp, zero1, zero2 or zero3.")),
    "sharding_group": (
        str,
        typer.Option(
            "--sharding-group",
            help="all; node: shards inside nodes, replicas between; hpz: a second copy in each node (ZeRO++).",
        ),
    ),
    "lora_rank": (int, typer.Option("--lora-rank", help="Train adapters of this rank, not the parameters.")),
    "tensor_parallel": (int, typer.Option("--tensor-parallel", "--tp", help="Tensor-parallel degree.")),
    "sequence_parallel": (
        bool,
        typer.Option(
            "--sequence-parallel/--no-sequence-parallel", help="Split what lies between tensor-parallel regions."
        ),
    ),
    "tensor_overlap": (
        bool,
        typer.Option(
            "--tensor-overlap/--no-tensor-overlap",
            help="Run tensor-parallel collectives under the products beside them (async TP, user buffers).",
        ),
    ),
    "pipeline_parallel": (int, typer.Option("--pipeline-parallel", "--pp", help="Pipeline stages.")),
    "virtual_stages": (int, typer.Option("--virtual-stages", "--vpp", help="Chunks of each stage.")),
    "pipeline_schedule": (
        str,
        typer.Option(
            "--pipeline-schedule", help="gpipe, 1f1b, interleaved (with --vpp), zb-h1, zb-h2 or dualpipe."
        ),
    ),
    "context_parallel": (int, typer.Option("--context-parallel", "--cp", help="Context-parallel degree.")),
    "context_communication": (
        str,
        typer.Option("--context-communication", help="p2p: a ring of keys and values; a2a: Ulysses."),
    ),
    "expert_parallel": (int, typer.Option("--expert-parallel", "--ep", help="Expert-parallel degree.")),
    "recompute": (str, typer.Option("--recompute", help="none, selective or full.")),
    "precision": (str, typer.Option("--precision", help="fp32, bf16 or fp16.")),
    "matrix_precision": (
        str,
        typer.Option(
            "--matrix-precision", help="fp8, fp8-blockwise, mxfp8, nvfp4 or fp4 for the layers' products."
        ),
    ),
    "plan": (
        str,
        typer.Option("--plan", "-p", help="Plan: a preset or a YAML file.", autocompletion=presets_of("plan")),
    ),
    "stack": (
        str,
        typer.Option(
            "--stack", "-s", help="Software stack: a preset or a YAML file.", autocompletion=presets_of("stack")
        ),
    ),
    "bandwidth": (
        str,
        typer.Option("--bandwidth", help="Another rate of each node's NICs together, as '400 Gb/s'."),
    ),
    "calibration": (
        Path,
        typer.Option("--calibration", help="What `wirecost calibrate --save` or --out wrote."),
    ),
}


@dataclass(frozen=True)
class Job:
    """The options of a job that a command received."""

    options: JobOptions

    def setup(self, workload: str) -> Setup:
        """Returns the checked setup of a workload with these options.

        Raises:
            SpecError: for an unknown name, or values that are inconsistent.
        """
        from wirecost.prediction.job import setup_of

        return setup_of(workload, self.options)

    def assumed(self, setup: Setup) -> dict[str, str]:
        """Returns the settings of the setup that no option specified: key of the plan or job, and its value as
        text.
        """
        plan = setup.plan
        chosen = {
            "data_parallel": plan.data_parallel.value,
            "sequence_parallel": "on" if plan.sequence_parallel else "off",
            "recompute": plan.recompute.value,
            "precision": plan.precision.value,
            "sequence_length": str(setup.workload.sequence_length),
            "stack": setup.stack.name,
            "micro_batch": str(setup.micro_batch),
            "global_batch": str(setup.global_batch),
        }
        by_plan = (
            {"data_parallel", "sequence_parallel", "recompute", "precision"} if self.options.get("plan") else set()
        )
        if plan.tensor_parallel == 1:
            by_plan.add("sequence_parallel")
        set_by_user = {key for key, value in self.options.items() if value is not None}
        return {key: value for key, value in chosen.items() if key not in set_by_user | by_plan}


def assumed_line(assumed: dict[str, str]) -> str:
    """Returns the assumptions as one line of text; an empty text without assumptions."""
    words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in assumed.items())
    return f"Assumed, since no option says otherwise: {words}." if words else ""


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a job, in place of its parameter `job`."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "job":
            parameters += [_parameter(name, *described) for name, described in _OPTIONS.items()]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        options: Any = {name: arguments.pop(name) for name in _OPTIONS}
        command(job=Job(options), **arguments)

    # Typer creates the options from the signature.
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    del with_options.__wrapped__  # type: ignore[attr-defined]
    return with_options
