"""Splits the modules of a model by rules for their types, so that models contain no parallelism code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.bert import BERTEmbedding, BERTHead
from wirecost.train.models.blocks import MLP, GatedMLP, SelfAttention, VocabularyLoss
from wirecost.train.models.gpt import GPTEmbedding, GPTHead
from wirecost.train.models.latent import MultiHeadLatentAttention
from wirecost.train.models.llama import GroupedAttention, LlamaEmbedding, LlamaHead
from wirecost.train.models.t5 import CrossAttention, RelativeBias, T5Embedding, T5Head, T5Turn
from wirecost.train.parallel.tensor.linear import Block, ColumnLinear, RowLinear, column_layers
from wirecost.train.parallel.tensor.ranks import TensorRanks, enter, whole_sequence
from wirecost.train.parallel.tensor.shards import Shards, mark_partial
from wirecost.train.parallel.tensor.vocabulary import (
    ParallelVocabularyLoss,
    SlicedEmbedding,
    VocabularyEmbedding,
)
from wirecost.train.recorder import Recorder


@dataclass(frozen=True)
class Splitter:
    """Replaces submodules of a module by their parallel forms."""

    shards: Shards
    ranks: TensorRanks

    def columns(self, module: nn.Module, *names: str, block: Block | None = None) -> None:
        """Splits linears by the columns of x W^T. `block` is the block whose first linears they are."""
        for name in names:
            setattr(module, name, ColumnLinear(getattr(module, name), self.shards, self.ranks, block))

    def rows(self, module: nn.Module, name: str, block: Block | None = None) -> None:
        """Splits a linear by its inputs. `block` is the block whose last linear it is."""
        setattr(module, name, RowLinear(getattr(module, name), self.shards, self.ranks, block))

    def heads(self, module: nn.Module, *names: str) -> None:
        """Divides numbers of heads by the number of ranks."""
        for name in names:
            setattr(module, name, getattr(module, name) // self.ranks.size)

    def tokens(self, module: nn.Module) -> None:
        """Splits the embedding of the tokens by the vocabulary."""
        module.tokens = VocabularyEmbedding(module.tokens, self.shards, self.ranks)  # type: ignore[arg-type]

    def sliced(self, module: nn.Module, name: str) -> None:
        """With sequence parallelism, restricts an embedding to this rank's slice of the sequence."""
        if self.ranks.sequence:
            setattr(module, name, SlicedEmbedding(getattr(module, name), self.ranks))


def _self_attention(attention: SelfAttention, split: Splitter) -> None:
    block = Block()
    split.columns(attention, "qkv", block=block)
    split.rows(attention, "out", block)
    split.heads(attention, "heads")


def _cross_attention(attention: CrossAttention, split: Splitter) -> None:
    split.columns(attention, "q", "kv")
    split.rows(attention, "out")
    split.heads(attention, "heads")


def _grouped_attention(attention: GroupedAttention, split: Splitter) -> None:
    block = Block()
    split.columns(attention, "qkv", block=block)
    split.rows(attention, "out", block)
    split.heads(attention, "heads", "kv_heads")


def _latent_attention(attention: MultiHeadLatentAttention, split: Splitter) -> None:
    """Splits what each head has of its own. All ranks compute what heads share, with sequence parallelism of their
    slice of the sequence."""
    split.columns(attention, "q", "kv")
    split.rows(attention, "out")
    split.heads(attention, "heads")
    attention.for_heads = lambda x: enter(x, split.ranks)
    if split.ranks.sequence:
        mark_partial(attention.kv_down.weight, attention.q_down.weight if attention.q_down else None)


def _mlp(mlp: MLP, split: Splitter) -> None:
    block = Block()
    split.columns(mlp, "up", block=block)
    split.rows(mlp, "down", block)


def _gated_mlp(mlp: GatedMLP, split: Splitter) -> None:
    block = Block()
    split.columns(mlp, "gate", "up", block=block)
    split.rows(mlp, "down", block)
    # Both linears have the same input, which is thus communicated only once.
    mlp.gated = lambda x: column_layers(x, mlp.gate, mlp.up)  # type: ignore[method-assign]


def _relative_bias(bias: RelativeBias, split: Splitter) -> None:
    assert isinstance(bias.weight, nn.Parameter)
    bias.weight = split.shards.shard(bias.weight, 1)


def _embedding(unit: GPTEmbedding | BERTEmbedding, split: Splitter) -> None:
    split.tokens(unit)
    split.sliced(unit, "positions")
    if isinstance(unit, BERTEmbedding):
        split.sliced(unit, "segments")


def _tokens(unit: T5Embedding | T5Turn | LlamaEmbedding, split: Splitter) -> None:
    split.tokens(unit)


def _head(unit: GPTHead | T5Head | LlamaHead, split: Splitter) -> None:
    assert isinstance(unit.vocabulary, VocabularyLoss)
    unit.vocabulary = ParallelVocabularyLoss(unit.vocabulary, split.shards, split.ranks)  # type: ignore[assignment]


def _bert_head(unit: BERTHead, split: Splitter) -> None:
    """Splits BERT's head by the vocabulary. All ranks compute the layers before it for the whole sequence.

    The masked positions may lie in any slice of the sequence.
    """
    unsplit = TensorRanks(split.ranks.communicator, sequence=False, overlap=split.ranks.overlap)
    if split.ranks.sequence:
        unit.register_forward_pre_hook(
            lambda _, inputs: ((whole_sequence(inputs[0][0], split.ranks),), *inputs[1:])
        )
        for parameter in unit.norm.parameters():
            vars(parameter).pop("tensor_partial")
    unit.vocabulary = ParallelVocabularyLoss(unit.vocabulary, split.shards, unsplit)  # type: ignore[assignment]


RULES: dict[type[nn.Module], Callable[[Any, Splitter], None]] = {
    SelfAttention: _self_attention,
    CrossAttention: _cross_attention,
    GroupedAttention: _grouped_attention,
    MultiHeadLatentAttention: _latent_attention,
    MLP: _mlp,
    GatedMLP: _gated_mlp,
    RelativeBias: _relative_bias,
    GPTEmbedding: _embedding,
    BERTEmbedding: _embedding,
    T5Embedding: _tokens,
    T5Turn: _tokens,
    LlamaEmbedding: _tokens,
    GPTHead: _head,
    T5Head: _head,
    LlamaHead: _head,
    BERTHead: _bert_head,
}


def apply_tensor_parallel(
    plan: Plan, model: nn.Module, groups: Groups, recorder: Recorder, micro_batch: int
) -> None:
    """Splits a whole model in place. Every rank of the tensor group keeps its part.

    Args:
        micro_batch: number of sequences in each micro-batch.
    """
    if groups.tensor.size == 1:
        return
    ranks = TensorRanks(
        Communicator(groups.tensor, recorder),
        sequence=plan.sequence_parallel,
        overlap=plan.overlap,
        by_batch=micro_batch % groups.tensor.size == 0,
    )
    split = Splitter(Shards(groups.tensor), ranks)
    modules = list(model.modules())
    if ranks.sequence:
        for module in modules:
            if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                mark_partial(*module.parameters())
    for module in modules:
        if rule := RULES.get(type(module)):
            rule(module, split)
        elif type(module).__name__ == "MixtureMLP":
            # The import loads PyTorch's compiler, which takes a second that other models don't need.
            from wirecost.train.parallel.tensor.experts import split_mixture

            split_mixture(module, split.shards, split.ranks)
