"""Which modules are split, and how: rules by type, so that models know nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from wirecost.spec import Plan
from wirecost.train.communicator import Communicator
from wirecost.train.groups import Groups
from wirecost.train.models.bert import BERTEmbedding, BERTHead
from wirecost.train.models.blocks import MLP, SelfAttention, VocabularyLoss
from wirecost.train.models.gpt import GPTEmbedding, GPTHead
from wirecost.train.models.llama import GatedMLP, GroupedAttention, LlamaEmbedding, LlamaHead
from wirecost.train.models.t5 import CrossAttention, RelativeBias, T5Embedding, T5Head, T5Turn
from wirecost.train.parallel.tensor.linear import ColumnLinear, RowLinear
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
    """What rules need: this rank's shards and the ranks it works with."""

    shards: Shards
    ranks: TensorRanks

    def columns(self, module: nn.Module, *names: str, entered: bool = False) -> None:
        for name in names:
            setattr(module, name, ColumnLinear(getattr(module, name), self.shards, self.ranks, entered=entered))

    def rows(self, module: nn.Module, name: str) -> None:
        setattr(module, name, RowLinear(getattr(module, name), self.shards, self.ranks))

    def heads(self, module: nn.Module, *names: str) -> None:
        """Counts of heads become this rank's."""
        for name in names:
            setattr(module, name, getattr(module, name) // self.ranks.size)

    def tokens(self, module: nn.Module) -> None:
        module.tokens = VocabularyEmbedding(module.tokens, self.shards, self.ranks)  # type: ignore[arg-type]

    def sliced(self, module: nn.Module, name: str) -> None:
        if self.ranks.sequence:
            setattr(module, name, SlicedEmbedding(getattr(module, name), self.ranks))


def _self_attention(attention: SelfAttention, split: Splitter) -> None:
    split.columns(attention, "qkv")
    split.rows(attention, "out")
    split.heads(attention, "heads")


def _cross_attention(attention: CrossAttention, split: Splitter) -> None:
    split.columns(attention, "q", "kv")
    split.rows(attention, "out")
    split.heads(attention, "heads")


def _grouped_attention(attention: GroupedAttention, split: Splitter) -> None:
    split.columns(attention, "qkv")
    split.rows(attention, "out")
    split.heads(attention, "heads", "kv_heads")


def _mlp(mlp: MLP, split: Splitter) -> None:
    split.columns(mlp, "up")
    split.rows(mlp, "down")


def _gated_mlp(mlp: GatedMLP, split: Splitter) -> None:
    # Both take the same input, which need not move twice.
    mlp.register_forward_pre_hook(lambda _, inputs: (enter(inputs[0], split.ranks),))
    split.columns(mlp, "gate", "up", entered=True)
    split.rows(mlp, "down")


def _relative_bias(bias: RelativeBias, split: Splitter) -> None:
    assert isinstance(bias.weight, nn.Parameter)
    bias.weight = split.shards.of(bias.weight, 1)


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
    """Masked positions and the first one may lie in any slice: the head sees the whole sequence, and all ranks
    compute alike what comes before the vocabulary."""
    whole = TensorRanks(split.ranks.communicator, sequence=False, overlap=split.ranks.overlap)
    if split.ranks.sequence:
        unit.register_forward_pre_hook(
            lambda _, inputs: ((whole_sequence(inputs[0][0], split.ranks),), *inputs[1:])
        )
        for parameter in unit.norm.parameters():
            vars(parameter).pop("tensor_partial")
    unit.vocabulary = ParallelVocabularyLoss(unit.vocabulary, split.shards, whole)  # type: ignore[assignment]


RULES: dict[type[nn.Module], Callable[[Any, Splitter], None]] = {
    SelfAttention: _self_attention,
    CrossAttention: _cross_attention,
    GroupedAttention: _grouped_attention,
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


def apply_tensor_parallel(plan: Plan, model: nn.Module, groups: Groups, recorder: Recorder) -> None:
    """Splits a whole model in place; every rank of the tensor group keeps its part."""
    if groups.tensor.size == 1:
        return
    ranks = TensorRanks(
        Communicator(groups.tensor, recorder), sequence=plan.sequence_parallel, overlap=plan.overlap
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
