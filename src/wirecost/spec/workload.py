"""Workloads: the models that are trained, without parallelism, batch sizes or hardware."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from wirecost.spec.base import Spec


class Family(StrEnum):
    """The kind of a transformer: decoder (gpt), encoder (bert), or both (t5)."""

    GPT = "gpt"
    BERT = "bert"
    T5 = "t5"


SPECIAL_TOKENS = {Family.GPT: 0, Family.BERT: 3, Family.T5: 101}
"""Number of token ids at the end of the vocabulary that text doesn't contain. BERT has [CLS], [SEP] and [MASK]
(Devlin et al. 2018), and T5 a start token and 100 sentinels (Raffel et al. 2019, section 3.1.4)."""


LLAMA = {
    "family": Family.GPT,
    "activation": "swiglu",
    "norm": "rmsnorm",
    "positions": "rotary",
    "biases": False,
    "tied_embeddings": False,
}
"""Keys of a decoder that `family: llama` stands for (Touvron et al. 2023, arXiv:2302.13971, section 2.2)."""


class MixtureOfExperts(Spec):
    """A mixture of experts: each layer has `experts` MLPs instead of one, and each token uses `top_k` of them.

    Attributes:
        experts: number of MLPs of a layer among which each token chooses.
        top_k: number of experts that each token uses.
        expert_ffn_hidden: width of an expert. None is the workload's `ffn_hidden`.
        shared_experts: number of further experts of the same width that every token uses.
        dense_layers: number of first layers with one MLP of the workload's `ffn_hidden`.
        moe_layers: number of layers with experts, wherever they are. The others have one MLP of the workload's
            `ffn_hidden`. None is all layers but the first `dense_layers`.
        scoring: the function that turns the router's logits into scores.
        normalised: whether the weights of a token's experts are divided by their sum.
        scaling: factor of these weights.
        aux_loss: coefficient of the loss that balances the experts of a layer (Fedus et al. 2021,
            arXiv:2101.03961, section 2.2). It is added to the loss for every layer with experts.
        capacity_factor: each expert takes this number times its share of the copies, at most one of each token,
            and drops the others. None drops none.
        routing: `learned`, or `balanced` if each expert gets equally many copies whatever the scores.
        groups: number of equal groups in which the experts are (arXiv:2405.04434, section 2.2.1).
        top_k_groups: number of best groups whose experts a token may use. A group is as good as its best score, or
            with sigmoid scores as the sum of its best two (arXiv:2412.19437, section 2.1.2).
    """

    experts: PositiveInt
    top_k: PositiveInt
    expert_ffn_hidden: PositiveInt | None = None
    shared_experts: NonNegativeInt = 0
    dense_layers: NonNegativeInt = 0
    moe_layers: PositiveInt | None = None
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = True
    scaling: float = Field(default=1.0, gt=0, le=1e6)
    aux_loss: float = Field(default=0.0, ge=0, le=1e6)
    capacity_factor: float | None = Field(default=None, gt=0, le=1e6)
    routing: Literal["learned", "balanced"] = "learned"
    groups: PositiveInt = 1
    top_k_groups: PositiveInt = 1

    @model_validator(mode="after")
    def _enough_experts(self) -> MixtureOfExperts:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} can't exceed the {self.experts} experts")
        if self.experts % self.groups:
            raise ValueError(
                f"{self.experts} experts do not divide into {self.groups} groups; nearest that do: "
                f"{nearest_multiples(self.experts, self.groups)}"
            )
        if self.top_k_groups > self.groups:
            raise ValueError(f"top_k_groups {self.top_k_groups} can't exceed the {self.groups} groups")
        if self.top_k > self.experts // self.groups * self.top_k_groups:
            raise ValueError(
                f"top_k {self.top_k} can't exceed the experts of {self.top_k_groups} of {self.groups} groups"
            )
        return self


class LatentAttention(Spec):
    """Multi-head latent attention: keys and values are computed from a vector of low rank (DeepSeek-V2,
    arXiv:2405.04434, section 2.1).

    Attributes:
        kv_rank: size of the vector from which keys and values are computed.
        q_rank: size of the vector from which queries are computed. None computes them from the input.
        nope_head_dim: size of the part of a head's queries and keys without positions.
        rope_head_dim: size of the part of a head's queries and keys with rotary positions. All heads share this
            part of the keys.
        value_head_dim: size of a head's values.
    """

    kv_rank: PositiveInt
    q_rank: PositiveInt | None = None
    nope_head_dim: PositiveInt
    rope_head_dim: PositiveInt
    value_head_dim: PositiveInt


class Workload(Spec):
    """The dimensions of a transformer.

    Attributes:
        name: name of the workload in tables and directories.
        family: kind of transformer: `gpt` (decoder), `bert` (encoder) or `t5` (both).
        layers: number of decoder layers for gpt, and of encoder layers for bert and t5.
        decoder_layers: number of decoder layers for t5.
        hidden: number of features of a token between layers.
        heads: number of attention heads.
        kv_heads: number of heads for keys and values. With fewer than `heads`, attention is grouped-query
            attention.
        head_dim: size of a head. None is hidden / heads.
        ffn_hidden: width of the MLP. None is 4 x hidden.
        latent_attention: the sizes of heads in latent attention. `kv_heads` and `head_dim` are then not read by
            predictions.
        vocab_size: number of rows of the embedding, with padding.
        sequence_length: number of tokens of a sequence. For t5, tokens that the encoder reads.
        decoder_sequence_length: number of tokens that the decoder of t5 reads. None is `sequence_length`.
        activation: activation function of the MLP. `swiglu` and `geglu` have a third matrix.
        norm: kind of normalization.
        positions: how positions enter the model: learned, rotary or relative embeddings, or by a bias of the
            attention (`alibi`, arXiv:2108.12409).
        biases: whether the matrix products of the layers have biases.
        tied_embeddings: whether the output layer shares the embedding's weights.
        mixture_of_experts: experts of each layer. None is one MLP in each layer.
        parallel_block: whether attention and MLP of a layer read the same input (GPT-J, Falcon, Command-R).
        multi_token_prediction: number of modules that predict one further token each (DeepSeek-V3,
            arXiv:2412.19437, section 2.2). A module has a layer of its own and shares embedding and output layer.
        sliding_window: number of tokens that a token attends to, itself included: the preceding ones for gpt,
            those on both sides for bert. None is all.
        full_attention_layers: number of layers without the sliding window.
        extra_layer_parameters: mean number of parameters of a layer that no other key describes, as those of
            biases of queries and norms of heads. Negative if a layer has fewer.
        extra_parameters: number of parameters outside the layers that no other key describes. Negative if there
            are fewer.
        approximations: features of the model that neither predictions nor the engine take into account. Each
            prediction names them.
        source: where the dimensions were published.
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
    positions: Literal["learned", "rotary", "relative", "alibi"] = "learned"
    biases: bool = True
    tied_embeddings: bool = True
    mixture_of_experts: MixtureOfExperts | None = None
    latent_attention: LatentAttention | None = None
    parallel_block: bool = False
    multi_token_prediction: int = Field(default=0, ge=0, le=100)
    sliding_window: PositiveInt | None = None
    full_attention_layers: NonNegativeInt = 0
    extra_layer_parameters: int = 0
    extra_parameters: int = 0
    approximations: tuple[str, ...] = ()
    source: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _llama_is_a_kind_of_gpt(cls, data: Any) -> Any:
        """Replaces `family: llama` by gpt with what makes a Llama, where no key says otherwise."""
        if isinstance(data, dict) and data.get("family") == "llama":
            return {**LLAMA, **{key: value for key, value in data.items() if key != "family"}}
        return data

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
        if self.mixture_of_experts and (self.mixture_of_experts.moe_layers or 0) > self.layers:
            raise ValueError(
                f"mixture_of_experts.moe_layers {self.mixture_of_experts.moe_layers} can't exceed the "
                f"{self.layers} layers"
            )
        return self

    @property
    def key_value_heads(self) -> int:
        """Number of heads for keys and values."""
        return self.kv_heads or self.heads

    @property
    def ffn(self) -> int:
        """Width of the MLP."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def dense_mlp_layers(self) -> int:
        """Number of layers with one MLP of width `ffn` in a model with experts. 0 without experts."""
        moe = self.mixture_of_experts
        if moe is None:
            return 0
        return min(moe.dense_layers, self.layers) if moe.moe_layers is None else self.layers - moe.moe_layers

    @property
    def gated(self) -> bool:
        """Whether the MLP has a third matrix (Shazeer 2020, arXiv:2002.05202)."""
        return self.activation in ("swiglu", "geglu")

    @property
    def decoder_sequence(self) -> int:
        """Number of tokens that the decoder of t5 reads."""
        return self.decoder_sequence_length or self.sequence_length

    @property
    def text_vocabulary(self) -> int:
        """Number of token ids that text may contain. The family's special tokens follow them."""
        return self.vocab_size - SPECIAL_TOKENS[self.family]

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.head_dim or self.hidden // self.heads


def nearest_multiples(value: int, divisor: int) -> str:
    """Returns the multiples of `divisor` below and above `value` for a message, as '12 or 16'."""
    below = value // divisor * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)
