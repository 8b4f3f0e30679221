"""Builds Megatron-Core's models from a workload, and runs one micro-batch of random tokens through them."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import torch

from wirecost.spec.megatron import MegatronJob
from wirecost.spec.plan import Precision, Recompute
from wirecost.spec.workload import Family

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
ACTIVATIONS = {
    "gelu": torch.nn.functional.gelu,
    "relu": torch.nn.functional.relu,
    "swiglu": torch.nn.functional.silu,
}
POSITIONS = {"learned": "learned_absolute", "rotary": "rope"}
PADDED_TO = 128
"""Megatron-LM pads the vocabulary to a multiple of this number times the tensor-parallel degree
(`--make-vocab-size-divisible-by`)."""


def transformer_config(settings: MegatronJob, layers: int | None = None) -> Any:
    """Returns the `TransformerConfig` of a workload and a plan.

    Args:
        layers: number of layers. None is the workload's.
    """
    from megatron.core.transformer import TransformerConfig

    workload, plan = settings.workload, settings.plan
    dtype = DTYPES[plan.precision]
    gated = workload.activation == "swiglu"
    recompute: dict[str, Any] = {}
    if plan.recompute is Recompute.SELECTIVE:
        recompute = {"recompute_granularity": "selective"}
    elif plan.recompute is Recompute.FULL:
        recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=layers or workload.layers,
        hidden_size=workload.hidden,
        num_attention_heads=workload.heads,
        num_query_groups=workload.key_value_heads,
        kv_channels=workload.head_size,
        ffn_hidden_size=workload.ffn,
        gated_linear_unit=gated,
        activation_func=ACTIVATIONS[workload.activation],
        normalization="RMSNorm" if workload.norm == "rmsnorm" else "LayerNorm",
        add_bias_linear=workload.biases,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        fp16=plan.precision is Precision.FP16,
        bf16=plan.precision is Precision.BF16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        tensor_model_parallel_size=plan.tensor_parallel,
        pipeline_model_parallel_size=plan.pipeline_parallel,
        sequence_parallel=plan.sequence_parallel,
        gradient_accumulation_fusion=False,
        barrier_with_L1_time=False,
        **recompute,
    )


def build(settings: MegatronJob, config: Any, *, first: bool, last: bool) -> torch.nn.Module:
    """Returns the part of a model that this pipeline stage has, on the CPU or where Megatron puts it.

    Args:
        first, last: whether this is the first or the last stage.
    """
    workload = settings.workload
    common: dict[str, Any] = {
        "vocab_size": padded_vocabulary(settings),
        "max_sequence_length": max(workload.sequence_length, workload.decoder_sequence),
        "pre_process": first,
        "post_process": last,
        "share_embeddings_and_output_weights": workload.tied_embeddings,
        "position_embedding_type": POSITIONS[workload.positions],
    }
    if workload.family is Family.GPT:
        from megatron.core.models.gpt import GPTModel
        from megatron.core.models.gpt.gpt_layer_specs import (
            get_gpt_layer_local_spec,
            get_gpt_layer_with_transformer_engine_spec,
        )

        if settings.transformer_engine:
            spec = get_gpt_layer_with_transformer_engine_spec()
        else:
            spec = get_gpt_layer_local_spec(normalization=config.normalization)
        return GPTModel(config=config, transformer_layer_spec=spec, **common)
    if workload.family is Family.BERT:
        from megatron.core.models.bert import bert_layer_specs
        from megatron.core.models.bert.bert_model import BertModel

        if settings.transformer_engine:
            spec = bert_layer_specs.get_bert_layer_with_transformer_engine_spec()
        else:
            spec = bert_layer_specs.bert_layer_local_spec
        return BertModel(
            config=config, num_tokentypes=2, transformer_layer_spec=spec, add_binary_head=False, **common
        )
    from megatron.core.models.T5 import t5_spec
    from megatron.core.models.T5.t5_model import T5Model

    kind = "transformer_engine" if settings.transformer_engine else "local"
    encoder = getattr(t5_spec, f"get_t5_encoder_with_{kind}_block_spec")(workload.layers)
    decoder = getattr(t5_spec, f"get_t5_decoder_with_{kind}_block_spec")(workload.decoder_layers)
    return T5Model(
        config=transformer_config(settings, workload.decoder_layers),
        encoder_config=config,
        transformer_encoder_layer_spec=encoder,
        transformer_decoder_layer_spec=decoder,
        **common,
    )


def padded_vocabulary(settings: MegatronJob) -> int:
    """Returns the number of rows of the embedding."""
    multiple = PADDED_TO * settings.plan.tensor_parallel
    return -(-settings.workload.vocab_size // multiple) * multiple


class Batch:
    """One batch of random tokens, which every iteration uses again, and its loss."""

    def __init__(self, settings: MegatronJob, device: torch.device, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        workload, size = settings.workload, settings.micro_batch

        def tokens(length: int) -> torch.Tensor:
            return torch.randint(0, workload.text_vocabulary, (size, length), generator=generator).to(device)

        def causal(length: int) -> torch.Tensor:
            return torch.ones((size, 1, length, length), dtype=torch.bool, device=device).triu(1)

        self._family = workload.family
        length = workload.sequence_length
        if workload.family is Family.T5:
            short = workload.decoder_sequence
            self._inputs = {
                "encoder_input_ids": tokens(length),
                "decoder_input_ids": tokens(short),
                "encoder_attn_mask": torch.zeros((size, 1, length, length), dtype=torch.bool, device=device),
                "decoder_attn_mask": causal(short),
                "encoder_decoder_attn_mask": torch.zeros(
                    (size, 1, short, length), dtype=torch.bool, device=device
                ),
                "lm_labels": tokens(short),
            }
        elif workload.family is Family.BERT:
            self._inputs = {
                "input_ids": tokens(length),
                "attention_mask": torch.ones((size, length), dtype=torch.long, device=device),
                "tokentype_ids": torch.zeros((size, length), dtype=torch.long, device=device),
                "lm_labels": tokens(length),
            }
        else:
            self._inputs = {
                "input_ids": tokens(length),
                "position_ids": torch.arange(length, device=device).expand(size, -1),
                "attention_mask": causal(length),
                "labels": tokens(length),
            }

    def forward(self, _batches: object, model: Any) -> tuple[Any, Any]:
        """Runs one micro-batch, in the form that Megatron-Core's schedules call.

        Returns:
            The output of the model's part, and the function that returns the loss of the last part's output.
        """
        return model(**self._inputs), self._loss

    def _loss(self, output: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        losses = output[0] if self._family is Family.BERT else output
        loss = losses.float().mean()
        return loss, {"loss": loss.detach().clone()}
