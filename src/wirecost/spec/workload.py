"""Workload: the model that is trained. It knows nothing of parallelism, batch or hardware."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from wirecost.spec.base import Spec


class Family(StrEnum):
    GPT = "gpt"
    BERT = "bert"
    T5 = "t5"


SPECIAL_TOKENS = {Family.GPT: 0, Family.BERT: 3, Family.T5: 101}
"""Ids at the vocabulary's end that no text has: BERT's [CLS], [SEP] and [MASK] (Devlin et al. 2018); T5's start
and 100 sentinels (Raffel et al. 2019, section 3.1.4)."""


class MixtureOfExperts(Spec):
    """Every layer's MLP becomes `experts` MLPs, of which each token visits `top_k`."""

    experts: PositiveInt
    top_k: PositiveInt
    expert_ffn_hidden: PositiveInt | None = None
    shared_experts: NonNegativeInt = 0  # that every token visits, as wide as the others
    dense_layers: NonNegativeInt = 0  # first layers that keep one MLP of the workload's ffn_hidden

    @model_validator(mode="after")
    def _enough_experts(self) -> MixtureOfExperts:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} can't exceed the {self.experts} experts")
        return self


class Workload(Spec):
    """A transformer by its dimensions.

    `layers` counts decoder layers for gpt and encoder layers for bert and t5; t5 adds `decoder_layers`.
    `vocab_size` is the embedding's height, padding included. `kv_heads` below `heads` is grouped-query
    attention. `ffn_hidden` defaults to 4 x hidden, `head_dim` to hidden / heads.
    """

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    family: Family = Family.GPT
    layers: PositiveInt
    decoder_layers: PositiveInt | None = None
    hidden: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    ffn_hidden: PositiveInt | None = None
    vocab_size: PositiveInt
    sequence_length: PositiveInt
    decoder_sequence_length: PositiveInt | None = None
    activation: Literal["gelu", "swiglu", "geglu", "relu"] = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    positions: Literal["learned", "rotary", "relative"] = "learned"
    biases: bool = True
    tied_embeddings: bool = True
    mixture_of_experts: MixtureOfExperts | None = None
    source: str | None = None

    @model_validator(mode="after")
    def _dimensions_fit(self) -> Workload:
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden {self.hidden} does not divide over {self.heads} heads; "
                f"nearest that does: {nearest_multiples(self.hidden, self.heads)}"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.key_value_heads}")
        if self.text_vocabulary < 1:
            raise ValueError(
                f"vocab_size {self.vocab_size} is too small: family {self.family} has "
                f"{SPECIAL_TOKENS[self.family]} special tokens"
            )
        if (self.family == Family.T5) != (self.decoder_layers is not None):
            raise ValueError("decoder_layers is for family t5, and t5 needs it")
        return self

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def ffn(self) -> int:
        return self.ffn_hidden or 4 * self.hidden

    @property
    def gated(self) -> bool:
        """Whether the MLP has a third matrix (Shazeer 2020, arXiv:2002.05202)."""
        return self.activation in ("swiglu", "geglu")

    @property
    def decoder_sequence(self) -> int:
        """Tokens that the decoder reads, for t5."""
        return self.decoder_sequence_length or self.sequence_length

    @property
    def text_vocabulary(self) -> int:
        """Ids that text may have; above them lie the family's special tokens."""
        return self.vocab_size - SPECIAL_TOKENS[self.family]

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden // self.heads


def nearest_multiples(value: int, divisor: int) -> str:
    """The multiples of `divisor` on both sides of `value`, for messages: '12 or 16'."""
    below = value // divisor * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)
