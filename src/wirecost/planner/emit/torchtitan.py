"""torchtitan: the options of its trainer."""

from __future__ import annotations

from wirecost.planner.emit.job import EmittedJob, command, torchrun_words
from wirecost.spec import Recompute

VERSION = "torchtitan 0.3.0"
_CONFIGS = {
    "llama-3-8b": ("llama3", "llama3_8b"),
    "llama-3.1-8b": ("llama3", "llama3_8b"),
    "llama-3-70b": ("llama3", "llama3_70b"),
    "llama-3.1-70b": ("llama3", "llama3_70b"),
    "llama-3-405b": ("llama3", "llama3_405b"),
    "llama-3.1-405b": ("llama3", "llama3_405b"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
}
"""Modules and configurations of torchtitan, by the names of workloads."""


def write(job: EmittedJob) -> str:
    """Returns the command that trains with torchtitan."""
    words = [*torchrun_words(job), "-m", "torchtitan.train"]
    return f"# {job.choice.label}\n" + command(words, arguments(job))


def arguments(job: EmittedJob) -> list[tuple[str, ...]]:
    """Returns the options of the trainer. The last one is the subcommand of activation checkpointing."""
    c, setup = job.choice, job.setup
    module, config = _CONFIGS.get(setup.workload.name, ("MODULE", "CONFIG"))
    replicas, shards = (c.dp, 1) if c.zero == 0 else (c.dp // job.shards, job.shards)
    # Pipelines take the micro-batches of a rank at once, and otherwise gradients are accumulated.
    local = c.mb * setup.accumulation if c.pp > 1 else c.mb
    found: list[tuple[str, ...]] = [
        ("--module", module),
        ("--config", config),
        ("--training.seq_len", str(setup.workload.sequence_length)),
        ("--training.local_batch_size", str(local)),
        ("--training.global_batch_size", str(setup.global_batch)),
        ("--parallelism.data_parallel_replicate_degree", str(replicas)),
        ("--parallelism.data_parallel_shard_degree", str(shards)),
        ("--parallelism.tensor_parallel_degree", str(c.tp)),
        ("--parallelism.context_parallel_degree", str(c.cp)),
        ("--parallelism.expert_parallel_degree", str(c.ep)),
    ]
    if c.zero >= 2:
        when = "always" if c.zero == 3 else "never"
        found.append(("--parallelism.fsdp_reshard_after_forward", when))
    if c.tp > 1 and not c.sp:
        found.append(("--parallelism.no-enable_sequence_parallel",))
    if c.pp > 1:
        found += _pipeline(job)
    found.append((f"activation_checkpoint:{_checkpointing(c.recompute)}",))
    return found


def _pipeline(job: EmittedJob) -> list[tuple[str, ...]]:
    c, layers = job.choice, job.setup.workload.layers
    ends = "0" if layers % (c.pp * c.vpp) == 0 else "1"
    return [
        ("--parallelism.pipeline_parallel_degree", str(c.pp)),
        ("--parallelism.pipeline_parallel_schedule", "Interleaved1F1B" if c.vpp > 1 else "1F1B"),
        ("--parallelism.pipeline_parallel_microbatch_size", str(c.mb)),
        ("--parallelism.pipeline_parallel_layers_per_stage", str(-(-layers // (c.pp * c.vpp)))),
        ("--parallelism.pipeline_parallel_first_stage_less_layers", ends),
        ("--parallelism.pipeline_parallel_last_stage_less_layers", ends),
        ("--training.disable_cuda_graphs",),
    ]


def _checkpointing(recompute: Recompute) -> str:
    return {Recompute.NONE: "none", Recompute.SELECTIVE: "selective", Recompute.FULL: "full"}[recompute]
