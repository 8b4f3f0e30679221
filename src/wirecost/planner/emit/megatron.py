"""Megatron-LM: the arguments of pretrain_gpt.py, whose names are those of Megatron-Core's configuration."""

from __future__ import annotations

from wirecost.errors import SpecError
from wirecost.planner.emit.job import EmittedJob, command, torchrun_words
from wirecost.spec import Family, MatrixPrecision, Precision, Recompute

VERSION = "Megatron-Core 0.16.1"
Arguments = list[tuple[str, ...]]


def write(job: EmittedJob) -> str:
    """Returns the command that trains with Megatron-LM.

    Raises:
        SpecError: for a model that isn't a decoder.
    """
    if job.setup.workload.family is not Family.GPT:
        raise SpecError(f"--emit megatron: {job.setup.workload.name} is no decoder; pretrain_gpt.py trains those")
    return f"# {job.choice.label}\n" + command([*torchrun_words(job), "pretrain_gpt.py"], arguments(job))


def arguments(job: EmittedJob) -> Arguments:
    """Returns the arguments of the plan and of the model. Data and tokenizer are the user's."""
    return [*_parallel(job), *_model(job)]


def _parallel(job: EmittedJob) -> Arguments:
    c, setup = job.choice, job.setup
    found: Arguments = [
        ("--tensor-model-parallel-size", str(c.tp)),
        ("--pipeline-model-parallel-size", str(c.pp)),
    ]
    if c.vpp > 1:
        found.append(("--num-virtual-stages-per-pipeline-rank", str(c.vpp)))
    if setup.workload.layers % (c.pp * c.vpp):
        found += _uneven(job)
    found += [("--context-parallel-size", str(c.cp))] if c.cp > 1 else []
    found += [("--expert-model-parallel-size", str(c.ep))] if c.ep > 1 else []
    found += [("--use-tp-pp-dp-mapping",)] if c.dp_last else []
    if c.sp:
        found.append(("--sequence-parallel",))
    if c.zero >= 1:
        found.append(("--use-distributed-optimizer",))
    if c.node_sharding and c.dp > job.shards:
        found.append(("--num-distributed-optimizer-instances", str(c.dp // job.shards)))
    if c.overlap:
        found.append(("--overlap-grad-reduce",))
        found += [("--overlap-param-gather",)] if c.zero >= 1 else []
    if c.recompute is Recompute.FULL:
        found += [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", "1"),
        ]
    elif c.recompute is Recompute.SELECTIVE:
        found.append(("--recompute-granularity", "selective"))
    if setup.plan.precision is not Precision.FP32:
        found.append((f"--{setup.plan.precision.value}",))
    found += low_precision(setup.plan.matrix_precision)
    return [
        *found,
        ("--micro-batch-size", str(c.mb)),
        ("--global-batch-size", str(setup.global_batch)),
    ]


def low_precision(precision: MatrixPrecision | None) -> Arguments:
    """Returns the arguments of products in 8 or 4 bits."""
    recipes = {
        MatrixPrecision.FP8_BLOCKWISE: [("--fp8-recipe", "blockwise")],
        MatrixPrecision.MXFP8: [("--fp8-recipe", "mxfp8")],
    }
    if precision is None or not precision.is_low:
        return []
    if precision.unscaled is MatrixPrecision.FP4:
        return [("--fp4-format", "e2m1")]
    return [("--fp8-format", "hybrid"), *recipes.get(precision, [])]


def _uneven(job: EmittedJob) -> Arguments:
    """Returns how layers are divided that don't divide evenly over the stages."""
    c, layers = job.choice, job.setup.workload.layers
    if (layers + 2) % (c.pp * c.vpp) == 0:
        return [
            ("--account-for-embedding-in-pipeline-split",),
            ("--account-for-loss-in-pipeline-split",),
        ]
    # The last stage, which has the vocabulary layer, gets fewer layers than the others.
    each = -(-layers // c.pp)
    last = layers - each * (c.pp - 1)
    if last < 1:
        raise SpecError(
            f"--emit megatron: {layers} layers do not divide over {c.pp} stages; choose another plan, as with "
            "--constraint"
        )
    return [("--decoder-last-pipeline-num-layers", str(last))]


def _model(job: EmittedJob) -> Arguments:
    w = job.setup.workload
    found: Arguments = [
        ("--num-layers", str(w.layers)),
        ("--hidden-size", str(w.hidden)),
        ("--ffn-hidden-size", str(w.ffn)),
        ("--num-attention-heads", str(w.heads)),
    ]
    if w.latent_attention is not None:
        found += _latent(job)
    elif w.key_value_heads != w.heads:
        found += [("--group-query-attention",), ("--num-query-groups", str(w.key_value_heads))]
    if w.head_dim and w.latent_attention is None:
        found.append(("--kv-channels", str(w.head_dim)))
    found += [
        ("--seq-length", str(w.sequence_length)),
        ("--max-position-embeddings", str(w.sequence_length)),
        ("--normalization", "RMSNorm" if w.norm == "rmsnorm" else "LayerNorm"),
        ("--position-embedding-type", "rope" if w.positions == "rotary" else "learned_absolute"),
    ]
    found += [("--swiglu",)] if w.activation == "swiglu" else []
    found += [("--disable-bias-linear",)] if not w.biases else []
    found += [("--untie-embeddings-and-output-weights",)] if not w.tied_embeddings else []
    moe = w.mixture_of_experts
    if moe is not None:
        width = moe.expert_ffn_hidden or w.ffn
        found += [
            ("--num-experts", str(moe.experts)),
            ("--moe-router-topk", str(moe.top_k)),
            ("--moe-ffn-hidden-size", str(width)),
            ("--moe-token-dispatcher-type", "alltoall"),
        ]
        if moe.shared_experts:
            found.append(("--moe-shared-expert-intermediate-size", str(moe.shared_experts * width)))
        if w.dense_mlp_layers:
            frequency = f"([0]*{w.dense_mlp_layers}+[1]*{w.layers - w.dense_mlp_layers})"
            found.append(("--moe-layer-freq", f"'{frequency}'"))
    if w.multi_token_prediction:
        found.append(("--mtp-num-layers", str(w.multi_token_prediction)))
    return found


def _latent(job: EmittedJob) -> Arguments:
    latent = job.setup.workload.latent_attention
    if latent is None:
        return []
    ranks = [("--q-lora-rank", str(latent.q_rank))] if latent.q_rank else []
    return [
        ("--multi-latent-attention",),
        *ranks,
        ("--kv-lora-rank", str(latent.kv_rank)),
        ("--qk-head-dim", str(latent.nope_head_dim)),
        ("--qk-pos-emb-head-dim", str(latent.rope_head_dim)),
        ("--v-head-dim", str(latent.value_head_dim)),
    ]
