"""T5: an encoder and a decoder with relative positions (Raffel et al. 2019, arXiv:1910.10683, section 2.1).

The model is that of the first release: RMSNorm before the sublayers, a ReLU MLP, no biases, unscaled scores,
one embedding for the encoder, the decoder and the scaled output, and one table of relative positions for all
layers of a stack.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from wirecost.spec import Workload
from wirecost.train.models.base import Batch, Model, State, Unit
from wirecost.train.models.blocks import MLP, SelfAttention, VocabularyLoss

BUCKETS = 32
FURTHEST = 128
"""Distance from which on all distances share a bucket."""


def buckets(distance: torch.Tensor, *, both_ways: bool) -> torch.Tensor:
    """Returns the buckets of distances, which are key positions minus query positions.

    Short distances have one bucket each. The buckets of longer ones grow logarithmically.

    Args:
        both_ways: whether positive distances have buckets of their own. Otherwise they count as 0.
    """
    count, start = BUCKETS, torch.zeros_like(distance)
    if both_ways:
        count //= 2
        start = count * (distance > 0)
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    share = torch.log(distance.clamp(min=1) / exact) / math.log(FURTHEST / exact)
    far = (exact + (share * (count - exact)).long()).clamp(max=count - 1)
    return start + torch.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
    """The bias of the scores, (1, heads, length, length). It is -inf for later positions if `causal` is set.

    Each layer computes the matrix again, which is cheaper than passing it along.

    Args:
        weight: (buckets, heads), the same object in every layer of a stack.
        length: number of positions.
    """

    distance_buckets: torch.Tensor
    future: torch.Tensor

    def __init__(self, weight: torch.Tensor, length: int, *, causal: bool) -> None:
        super().__init__()
        self.weight = weight
        self.length = length
        self.causal = causal
        # Place c of a cycle of 2 length + 1 places stands for distance c, or for c minus a cycle if that is
        # negative.
        places = torch.arange(2 * length + 1)
        distance = torch.where(places < length, places, places - len(places))
        self.register_buffer("distance_buckets", buckets(distance, both_ways=not causal), persistent=False)
        self.register_buffer("future", distance > 0, persistent=False)

    def forward(self) -> torch.Tensor:
        cycle = functional.embedding(self.distance_buckets, self.weight).t()
        if self.causal:
            cycle = cycle.masked_fill(self.future, -math.inf)
        # The cycle is repeated and read in rows that are one element shorter, so it moves by one place in each
        # row. This needs no gather, and backward is a plain sum. Rows of 2 length elements are aligned for
        # fused attention.
        heads, rows = len(cycle), self.length
        repeated = cycle.unsqueeze(1).expand(-1, rows, -1).reshape(heads, -1)
        return repeated[None, :, : 2 * rows * rows].view(1, heads, rows, 2 * rows)[..., :rows]


class CrossAttention(nn.Module):
    """Attention of the decoder's activations to the encoder's output, both (batch, positions, hidden)."""

    def __init__(self, hidden: int, heads: int, head_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = head_size
        self.q = nn.Linear(hidden, heads * head_size, bias=False)
        self.kv = nn.Linear(hidden, 2 * heads * head_size, bias=False)
        self.out = nn.Linear(heads * head_size, hidden, bias=False)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(-1, (self.heads, self.head_size)).transpose(1, 2)
        # The rows are ordered by head, as in SelfAttention.
        parts = self.kv(memory).unflatten(-1, (self.heads, 2, self.head_size)).unbind(-2)
        k, v = (part.transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        return self.out(y.transpose(1, 2).flatten(2))


class _Layer(Unit):
    """Self-attention and MLP of a layer of either stack."""

    layers = 1

    def __init__(self, workload: Workload, relative: torch.Tensor, length: int, *, causal: bool) -> None:
        super().__init__()
        self.attention_norm = _norm(workload)
        self.relative = RelativeBias(relative, length, causal=causal)
        self.attention = SelfAttention(
            workload.hidden,
            workload.heads,
            causal=causal,
            head_size=workload.head_size,
            biases=False,
            scale=1.0,
        )
        self.mlp_norm = _norm(workload)
        self.mlp = MLP(workload.hidden, workload.ffn, activation=functional.relu, biases=False)


class T5Embedding(Unit):
    """The embedding of the encoder's tokens."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)

    def forward(self, state: State, batch: Batch) -> State:
        return (self.tokens(batch["inputs"]),)


class T5EncoderLayer(_Layer):
    """An encoder layer."""

    def __init__(self, workload: Workload, relative: torch.Tensor) -> None:
        super().__init__(workload, relative, workload.sequence_length, causal=False)

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        x = x + self.attention(self.attention_norm(x), self.relative())
        return (x + self.mlp(self.mlp_norm(x)),)


class T5Turn(Unit):
    """The unit between the encoder and the decoder: the encoder's last norm, and the embedding of the decoder's
    tokens.

    The state that it returns is (the encoder's output, the decoder's activations).
    """

    def __init__(self, workload: Workload, tied: torch.Tensor) -> None:
        super().__init__()
        self.norm = _norm(workload)
        with torch.device("meta"):  # the next line replaces the weight
            self.tokens = nn.Embedding(workload.vocab_size, workload.hidden)
        self.tokens.weight = tied

    def forward(self, state: State, batch: Batch) -> State:
        (x,) = state
        return self.norm(x), self.tokens(batch["decoder_inputs"])


class T5DecoderLayer(_Layer):
    """A decoder layer."""

    def __init__(self, workload: Workload, relative: torch.Tensor) -> None:
        super().__init__(workload, relative, workload.decoder_sequence, causal=True)
        self.cross_norm = _norm(workload)
        self.cross_attention = CrossAttention(workload.hidden, workload.heads, workload.head_size)

    def forward(self, state: State, batch: Batch) -> State:
        memory, x = state
        x = x + self.attention(self.attention_norm(x), self.relative())
        x = x + self.cross_attention(self.cross_norm(x), memory)
        return memory, x + self.mlp(self.mlp_norm(x))


class T5Head(Unit):
    """The last norm, and the mean cross-entropy of the targets. The embedding's logits are divided by
    sqrt(hidden)."""

    def __init__(self, workload: Workload, tied: torch.Tensor) -> None:
        super().__init__()
        self.norm = _norm(workload)
        self.scale = workload.hidden**-0.5
        self.vocabulary = VocabularyLoss(tied)

    def forward(self, state: State, batch: Batch) -> State:
        _, x = state
        return (self.vocabulary(self.norm(x) * self.scale, batch["targets"]),)


def t5(workload: Workload) -> Model:
    """Returns an initialised T5."""
    assert workload.decoder_layers is not None
    embedding = T5Embedding(workload)
    encoder, decoder = (nn.Parameter(torch.empty(BUCKETS, workload.heads)) for _ in range(2))
    model = Model(
        [
            embedding,
            *(T5EncoderLayer(workload, encoder) for _ in range(workload.layers)),
            T5Turn(workload, embedding.tokens.weight),
            *(T5DecoderLayer(workload, decoder) for _ in range(workload.decoder_layers)),
            T5Head(workload, embedding.tokens.weight),
        ]
    )
    _initialise(model, workload)
    return model


def _norm(workload: Workload) -> nn.RMSNorm:
    return nn.RMSNorm(workload.hidden, eps=1e-6)


def _initialise(model: Model, workload: Workload) -> None:
    """Initialises weights by their fan-in. Queries are divided by sqrt(head_size), because scores aren't
    scaled."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            continue
        if name.endswith("tokens.weight"):
            std = 1.0
        elif name.endswith("relative.weight"):
            std = workload.hidden**-0.5
        else:
            std = parameter.shape[1] ** -0.5
        nn.init.normal_(parameter, std=std)
        with torch.no_grad():
            if name.endswith("cross_attention.q.weight"):
                parameter.mul_(workload.head_size**-0.5)
            elif name.endswith("attention.qkv.weight"):
                heads = parameter.view(workload.heads, 3, workload.head_size, workload.hidden)
                heads[:, 0].mul_(workload.head_size**-0.5)
