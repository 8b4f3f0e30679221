"""The inputs of the formulas: a model's shape, its layout over ranks, and the machine. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.costmodel.numbers import Number, has
from wirecost.spec import SharedCores, Stack
from wirecost.spec.efficiency import CollectiveEfficiency
from wirecost.spec.stack_costs import HostCosts

RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL = 0.0, 1.0, 2.0


@dataclass(slots=True)
class Shape:
    """A transformer's dimensions. `query` and `key_value` are heads x head size, with latent attention heads x the
    mean size of a head's keys and values."""

    layers: Number
    hidden: Number
    heads: Number
    query: Number
    key_value: Number
    ffn: Number
    mlp_matrices: Number  # 2, or 3 where gated
    vocab: Number
    sequence: Number
    layer_parameters: Number  # of one layer, all experts
    embedding_parameters: Number  # of the token embedding
    other_parameters: Number  # of the untied head, positions, norms
    causal: Number = 1.0
    experts: Number = 1.0
    top_k: Number = 1.0  # experts to which each token is dispatched
    shared_experts: Number = 0.0  # experts that every token uses on its own rank
    moe_share: Number = 0.0  # of the layers, those with experts; `ffn` is then the width of an expert
    dense_ffn: Number = 0.0  # width of the MLP of the layers without experts
    capacity: Number = 0.0  # capacity factor; 0: no token is dropped
    learned_routing: Number = 0.0  # the loads of the experts are not equal
    used_groups: Number = 0.0  # groups of experts that a token uses at most, each on a node of its own; 0: any
    expert_parameters: Number = 0.0  # of the experts, in the mean over all layers
    head_share: Number = 1.0  # of the tokens, those that reach the vocabulary layer
    masked: Number = 0.0  # tokens of a sequence that a BERT's output layer predicts; 0: no BERT
    decoder_layers: Number = 0.0  # with cross attention (T5)
    decoder_sequence: Number = 0.0
    decoder_layer_parameters: Number = 0.0
    tied: Number = 1.0  # the head is the embedding
    latent_split: Number = 0.0  # weights of latent attention that tensor parallelism splits; 0: ordinary attention
    latent_whole: Number = 0.0  # weights of latent attention that each tensor-parallel rank has
    latent_width: Number = 0.0  # features of a token between the products of latent attention
    latent_inputs: Number = 0.0  # features of a token that its heads' products read; 0: ordinary attention
    latent_shared: Number = 0.0  # of them, those that no product reads, because all heads have them
    whole: Number = 0.0  # parameters of a layer that each tensor-parallel rank has, besides `latent_whole`
    whole_ends: Number = 0.0  # such parameters of the model outside of its layers
    repeated_ends: Number = 0.0  # of them, those that every rank uses for the whole sequence
    aux_loss: Number = 0.0  # 1 where a loss balances the experts
    window: Number = 0.0  # tokens that a token attends to in the layers with a window
    window_share: Number = 0.0  # of the layers, those with a window
    predicted: Number = 0.0  # modules of multi-token prediction, on the last stage
    module_parameters: Number = 0.0  # of one of them, all experts
    module_experts: Number = 0.0  # of the experts among them

    @property
    def parameters(self) -> Number:
        """Returns the number of trainable parameters of the whole model."""
        return (
            self.layers * self.layer_parameters
            + self.decoder_layers * self.decoder_layer_parameters
            + self.embedding_parameters
            + self.other_parameters
            + self.predicted * self.module_parameters
        )


@dataclass(slots=True)
class Layout:
    """The layout of a model over ranks. `accumulation` is the number of micro-batches of a rank in
    an iteration.
    """

    tensor: Number
    pipeline: Number
    data: Number
    micro_batch: Number
    accumulation: Number
    virtual: Number = 1.0
    context: Number = 1.0
    expert: Number = 1.0
    sharding: Number = 0.0  # ZeRO stage, 0 to 3
    bucketed: Number = 0.0  # gradients leave while backward goes on
    node_sharding: Number = 0.0  # hybrid: shards inside a node, replicas between nodes
    secondary: Number = 0.0  # hpZ: backward gathers from a copy inside the node
    trained: Number = 1.0  # parameters with gradients over all parameters; below 1 with LoRA
    sequence_parallel: Number = 0.0
    recompute: Number = RECOMPUTE_NONE
    gpipe: Number = 0.0
    zero_bubble: Number = 0.0  # 1: ZB-H1, 2: ZB-H2
    dualpipe: Number = 0.0
    exchanged_context: Number = 0.0  # context parallelism by all-to-all (Ulysses)
    gradient_bytes: Number = 0.0  # 0: the stack's
    exchanged: Number = 0.0  # gradients are summed by an all-to-all and an all-gather (8 bits)
    factored: Number = 0.0  # gradients are summed by two all-reduces of half the bytes (PowerSGD)
    compression_bytes: Number = 0.0  # memory traffic of turning a gradient into what is sent, and back
    bucket_bytes: Number = 25.0 * 2**20
    mean_bucket_bytes: Number = 0.0  # of buckets of whole parameters; 0: `bucket_bytes` if bucketed, else all
    last_bucket_bytes: Number = 0.0  # 0: what is left of the parameters, or the tied embedding
    tensor_overlap: Number = 0.0  # of tensor-parallel collectives: 1 under products, -1 never, 0 as the stack does
    pipeline_first: Number = 0.0  # ranks run pipeline, data, context, tensor instead of the reverse
    data_last: Number = 0.0  # ranks run tensor, context, pipeline, data

    @property
    def world(self) -> Number:
        """Returns the number of ranks of the job."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def tensor_stride(self) -> Number:
        """Returns the distance in ranks between neighbours of a tensor-parallel group."""
        if not has(self.pipeline_first > 0):
            return 1.0
        return 1 + self.pipeline_first * (self.pipeline * self.data * self.context - 1)

    @property
    def data_stride(self) -> Number:
        """Returns the distance in ranks between neighbours of a data-parallel group."""
        inner = self.tensor
        if has(self.data_last > 0):
            inner = inner * (1 + self.data_last * (self.pipeline - 1))
        if not has(self.pipeline_first > 0):
            return inner
        return inner + self.pipeline_first * (self.pipeline - inner)

    @property
    def stage_stride(self) -> Number:
        """Returns the distance in ranks between neighbouring stages."""
        stage = self.tensor * self.data * self.context
        if has(self.data_last > 0):
            stage = stage + self.data_last * (self.tensor * self.context - stage)
        if not has(self.pipeline_first > 0):
            return stage
        return stage + self.pipeline_first * (1 - stage)


@dataclass(slots=True)
class HeldParameters:
    """Parameters of the fullest rank, in `layers` layers."""

    total: Number
    layers: Number
    tied: Number  # of them, the embedding's share
    root: Number  # of them, with a tied embedding what the units at both ends hold
    first: Number = 0.0  # of them, without a tied embedding those of the embedding's unit
    last: Number = 0.0  # and those of the output layer's unit
    experts: Number = 0.0  # of them, those of experts
    partial: Number = 0.0  # of them, those of which a tensor-parallel rank has the gradients of its tokens only
    expert_blocks: Number = 0.0  # layers whose experts are divided among ranks


@dataclass(slots=True)
class LinkCosts:
    """The costs of collectives on one link. `half_bytes` is the message size whose time is twice that at full
    rate.
    """

    efficiency: float
    latency_s: float
    step_s: float
    half_bytes: float


@dataclass(slots=True)
class HostTimes:
    """A stack's launch times (`wirecost.spec.stack_costs.HostCosts`) on the machine's host, in seconds."""

    forward_s: Number
    backward_s: Number
    collective_s: Number
    softmax_fallback_s: Number
    vocabulary_s: Number
    issue_s: Number
    issue_once_s: Number
    shard_s: Number
    sequence_collective_s: Number | None = None  # None: see `HostCosts`
    transfer_s: Number | None = None

    @classmethod
    def of(cls, costs: HostCosts) -> HostTimes:
        """Returns the times as the stack states them."""
        return cls(
            forward_s=costs.forward_s,
            backward_s=costs.backward_s,
            collective_s=costs.collective_s,
            softmax_fallback_s=costs.softmax_fallback_s,
            vocabulary_s=costs.vocabulary_s,
            issue_s=costs.issue_s,
            issue_once_s=costs.issue_once_s,
            shard_s=costs.shard_s,
            sequence_collective_s=costs.sequence_collective_s,
            transfer_s=costs.transfer_s,
        )

    def times(self, factor: Number) -> HostTimes:
        """Returns the times of a host on which everything takes `factor` times as long."""
        return HostTimes(
            forward_s=self.forward_s * factor,
            backward_s=self.backward_s * factor,
            collective_s=self.collective_s * factor,
            softmax_fallback_s=self.softmax_fallback_s * factor,
            vocabulary_s=self.vocabulary_s * factor,
            issue_s=self.issue_s * factor,
            issue_once_s=self.issue_once_s * factor,
            shard_s=self.shard_s * factor,
            sequence_collective_s=scaled(self.sequence_collective_s, factor),
            transfer_s=scaled(self.transfer_s, factor),
        )


def scaled(time_s: Number | None, factor: Number) -> Number | None:
    """Returns `factor` times a time, or None if the time is None."""
    return None if time_s is None else time_s * factor


@dataclass(slots=True)
class Machine:
    """A GPU under a software stack, with its links: one machine for many configurations.

    Rates and times are arrays only where ranks share processor cores, so that they depend on the configuration.
    """

    peak_flops: Number
    attention_peak_flops: Number  # of the format that attention and the vocabulary layer use
    memory_Bps: Number
    memory_bytes: float
    matrix_efficiency: float
    matrix_traffic: float
    memory_efficiency: float
    power_throttle: float
    attention_efficiency: float
    gpus_per_node: float
    intra_Bps: float
    intra: LinkCosts
    node_Bps: float  # all NICs of a node, one direction
    nics_per_node: float
    inter: LinkCosts
    inter_shared: float  # what is left of the node's rate where rings share its NICs
    two_node_tree: float  # wirecost.costmodel.nccl.tree_share
    stack: Stack
    host: HostTimes
    once_s: Number  # what the host does once an iteration
    element_bytes: float = 2.0
    product_bytes: float = 2.0  # of an operand of the layers' matrix products
    activation_scale: float = 1.0  # 2 where activations take four bytes
    gpu_name: str = ""
    shared_cores: SharedCores | None = None  # where ranks share processor cores
    curves: tuple[CollectiveEfficiency, ...] = ()  # measured collectives

    def slowed(self, factor: Number) -> Machine:
        """Returns the machine whose compute and host, but not whose network, take `factor` times as long."""
        return replace(
            self,
            peak_flops=self.peak_flops / factor,
            attention_peak_flops=self.attention_peak_flops / factor,
            memory_Bps=self.memory_Bps / factor,
            host=self.host.times(factor),
            once_s=self.once_s * factor,
        )
