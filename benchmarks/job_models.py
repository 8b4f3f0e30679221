"""Models in plain PyTorch for jobs: a decoder, and Hugging Face's GPT-2 and Llama from a configuration.

Weights are random. The decoder's layers have one matrix for queries, keys and values of a head side by side, so
that its columns can be divided over tensor-parallel ranks by head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """Dimensions of a model. `kv_heads` and `ffn` are those of a Llama."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int = 0
    ffn: int = 0


GPT_2_MEDIUM = Size(50257, 1024, 24, 16)
"""gpt2-medium's config.json."""
TINY_LLAMA = Size(32000, 2048, 22, 32, 4, 5632)
"""TinyLlama 1.1B's config.json."""
SMALL = Size(8192, 256, 24, 8)
"""A model whose kernels are shorter than their launch."""
TINY = Size(512, 64, 2, 4, 2, 128)
"""For checking that a job runs."""


class Layer(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.head_size = size.hidden // size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv, self.out = nn.Linear(size.hidden, 3 * size.hidden), nn.Linear(size.hidden, size.hidden)
        self.up, self.down = nn.Linear(size.hidden, 4 * size.hidden), nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (-1, 3 * self.head_size)).transpose(1, 2)
        q, k, v = heads.chunk(3, dim=-1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """A decoder, or the part of one that a stage of a pipeline has.

    It returns the loss of tokens that predict themselves. The last stage of a pipeline returns logits, the others
    what the next stage continues with.
    """

    def __init__(self, size: Size, sequence: int, *, stage: int = 0, stages: int = 1) -> None:
        super().__init__()
        self.whole, self.first, self.last = stages == 1, stage == 0, stage == stages - 1
        self.first_position = 0  # of the part of the sequence that this rank has
        if self.first:
            self.tokens = nn.Embedding(size.vocabulary, size.hidden)
            self.positions = nn.Embedding(sequence, size.hidden)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers // stages))
        if self.last:
            self.norm = nn.LayerNorm(size.hidden)
            self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x
        if self.first:
            x = self.tokens(x)
            x = x + self.positions.weight[self.first_position : self.first_position + x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        if not self.last:
            return x
        logits = self.head(self.norm(x))
        return loss_of(logits, given) if self.whole else logits


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the cross-entropy of logits (batch, sequence, vocabulary) in FP32."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Labelled(nn.Module):
    """A model of Hugging Face that returns the loss of tokens that are their own labels."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=tokens).loss


def hugging_face_gpt2(size: Size, sequence: int) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Returns transformers' GPT2LMHeadModel, and its layers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.hidden, n_layer=size.layers, n_head=size.heads,
        n_positions=sequence, use_cache=False,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel(config).train()
    return Labelled(model), list(model.transformer.h)


def hugging_face_llama(size: Size, sequence: int) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Returns transformers' LlamaForCausalLM, and its layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.hidden, intermediate_size=size.ffn,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=size.kv_heads,
        max_position_embeddings=sequence, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config).train()
    return Labelled(model), list(model.model.layers)


def build(name: str, sequence: int, *, tiny: bool) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Returns a model on the CPU in FP32, and its layers."""
    if name == "hf-gpt2":
        return hugging_face_gpt2(TINY if tiny else GPT_2_MEDIUM, sequence)
    if name == "hf-llama":
        return hugging_face_llama(TINY if tiny else TINY_LLAMA, sequence)
    decoder = Decoder(size_of(name, tiny=tiny), sequence)
    return decoder, list(decoder.layers)


def size_of(name: str, *, tiny: bool) -> Size:
    """Returns the dimensions of a decoder."""
    return TINY if tiny else {"decoder": GPT_2_MEDIUM, "small": SMALL}[name]
