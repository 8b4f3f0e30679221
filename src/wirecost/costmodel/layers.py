"""All layers of the model, and its ends (embedding and vocabulary layer), on one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wirecost.costmodel.collectives import Group
from wirecost.costmodel.compute import (
    DeviceTime,
    LayerCommunication,
    embedding_time,
    layer_device,
    layer_time,
    matrix_s,
    vocabulary_time,
)
from wirecost.costmodel.experts import context_forward_s, expert_forward_s
from wirecost.costmodel.flops import layer_work
from wirecost.costmodel.host_launch import DECODER_COLLECTIVES, encoder_collectives, with_decoder_layers
from wirecost.costmodel.inputs import RECOMPUTE_FULL, Layout, Machine, Shape
from wirecost.costmodel.numbers import Number, flag, has, where
from wirecost.costmodel.tensor import TensorTime, routing, tensor_group, under_products_s, vocabulary_s
from wirecost.costmodel.tensor import forward as forward_tensor


@dataclass(slots=True)
class LayersTime:
    """All layers of the model on one micro-batch, in seconds, and what the vocabulary layer takes over from
    them."""

    count: Number
    members: Group  # the tensor-parallel group
    forward_s: Number
    backward_s: Number
    device_s: Number
    communication_s: Number
    context_expert_share: Number  # of the communication
    tensor: TensorTime  # of the (first) layers
    embedding_s: Number  # the all-reduces of the embeddings' outputs
    tokens: Number  # on one rank
    head_tokens: Number
    head_activation_s: Number
    weight_s: Number = 0.0  # the part of backward for the gradients of weights


@dataclass(slots=True)
class EndsTime:
    """Embedding and vocabulary layer on one micro-batch, forward and backward, in seconds. With multi-token
    prediction the modules count to the vocabulary layer; `module_host_s` is what they wait for launches."""

    embedding_s: Number
    embedding_comm_s: Number
    vocabulary_s: Number
    vocabulary_comm_s: Number
    module_host_s: Number = 0.0

    @property
    def first_s(self) -> Number:
        """Returns the first stage's seconds besides its layers."""
        return self.embedding_s + self.embedding_comm_s

    @property
    def last_s(self) -> Number:
        """Returns the last stage's seconds besides its layers."""
        return self.vocabulary_s + self.vocabulary_comm_s + self.module_host_s


def layers_time(shape: Shape, layout: Layout, machine: Machine) -> LayersTime:
    """Returns the time of all layers on one micro-batch."""
    sequence = shape.sequence
    tokens = layout.micro_batch * sequence / layout.context
    device = layer_device(layer_work(shape, layout, sequence=sequence), shape, layout, machine)
    members = tensor_group(layout, machine)
    tensor = forward_tensor(tokens, members, shape, layout, machine)
    collectives = encoder_collectives(shape)
    tensor_s = tensor.layer_s(collectives)
    context_expert = context_forward_s(device.attention_core_s, sequence, shape, layout, machine)
    exchange = expert_forward_s(tokens, shape, layout, machine)
    if has(layout.dualpipe > 0):
        # Another micro-batch computes meanwhile.
        exposed = np.maximum(exchange - device.forward_s, 0.0)
        exchange = where(layout.dualpipe > 0, exposed, exchange)
    context_expert = context_expert + exchange
    again = tensor.again_s(collectives, shape)
    if machine.stack.tensor_parallel.small_collectives and has((shape.moe_share > 0) & (layout.tensor > 1)):
        route = routing(tokens, tensor, members, shape, layout, machine)
        tensor_s = tensor_s + route.forward_s
        again = again + route.again_s - flag(layout.recompute == RECOMPUTE_FULL) * route.kept_s
    if has(shape.latent_inputs > 0):
        # The products that narrow the input of latent attention aren't split: the collectives are those of what
        # they return, in place of the layer's input.
        narrow = forward_tensor(tokens, members, replace(shape, hidden=shape.latent_inputs), layout, machine)
        more = narrow.column_s() - tensor.column_s()
        if machine.stack.tensor_parallel.small_collectives:
            # Backward gathers what all heads have no second time.
            shared = replace(shape, hidden=shape.latent_shared)
            more = more - forward_tensor(tokens, members, shared, layout, machine).gathered_again_s
            more = more + flag(layout.recompute == RECOMPUTE_FULL) * (narrow.gather_s - tensor.gather_s)
        again = again + where(shape.latent_inputs > 0, more, 0.0)
    if has(layout.tensor_overlap > 0):
        tensor_s, again = _under_products(tensor_s, again, device, layout)
    both = tensor_s + context_expert
    communication = LayerCommunication(both, again, collectives)
    layer = layer_time(device, communication, shape, layout, machine)
    encoder = LayersTime(
        count=shape.layers,
        members=members,
        forward_s=shape.layers * layer.forward_s,
        backward_s=shape.layers * layer.backward_s,
        device_s=shape.layers * layer.device_s,
        communication_s=shape.layers * layer.communication_s,
        context_expert_share=context_expert / np.maximum(both, 1e-30),
        tensor=tensor,
        embedding_s=tensor.activation_s,
        tokens=tokens,
        head_tokens=tokens * shape.head_share,
        head_activation_s=_head_activation_s(tensor, members, shape, layout, machine),
        # Attention itself has no weights.
        weight_s=shape.layers * layout.trained * (device.forward_s - device.attention_core_s),
    )
    return _with_decoder(encoder, shape, layout, machine) if has(shape.decoder_layers > 0) else encoder


def _head_activation_s(
    tensor: TensorTime, members: Group, shape: Shape, layout: Layout, machine: Machine
) -> Number:
    """Returns the seconds of the collectives of the output layer's input. With sequence parallelism a BERT gathers
    its whole sequences, of which each rank takes the masked tokens."""
    time = tensor.activation_s + tensor.gathered_again_s
    if not has(shape.masked > 0):
        return time
    masked = replace(layout, sequence_parallel=layout.sequence_parallel * 0.0)
    summed = forward_tensor(layout.micro_batch * shape.masked, members, shape, masked, machine).activation_s
    return where(shape.masked > 0, tensor.gather_s + summed, time)


def _under_products(
    tensor_s: Number, again_s: Number, device: DeviceTime, layout: Layout
) -> tuple[Number, Number]:
    """Returns the exposed collectives of forward, and what backward has more, where they run under products."""
    overlapped = layout.tensor_overlap > 0
    forward_s = under_products_s(tensor_s, device.products_s, layout)
    backward_s = under_products_s(tensor_s + again_s, (1 + layout.trained) * device.products_s, layout)
    return where(overlapped, forward_s, tensor_s), where(overlapped, backward_s - forward_s, again_s)


def _with_decoder(encoder: LayersTime, shape: Shape, layout: Layout, machine: Machine) -> LayersTime:
    """Adds the layers with cross attention."""
    decoders, out = shape.decoder_layers, shape.decoder_sequence
    tokens = layout.micro_batch * out / layout.context
    work = layer_work(shape, layout, sequence=out, keys=shape.sequence)
    tensor = forward_tensor(tokens, encoder.members, shape, layout, machine)
    host = with_decoder_layers(machine.host)
    device = layer_device(work, shape, layout, machine)
    tensor_s, again = tensor.layer_s(DECODER_COLLECTIVES), tensor.again_s(DECODER_COLLECTIVES, shape)
    if has(layout.tensor_overlap > 0):
        tensor_s, again = _under_products(tensor_s, again, device, layout)
    # Keys and values of cross attention are computed from the encoder's output, which is as long as the encoder's
    # tokens. Their product is column-parallel, and nothing row-parallel follows: one collective of forward and
    # backward together, whose time backward has here.
    again = again + encoder.tensor.column_s()
    if machine.stack.tensor_parallel.small_collectives:
        # Recomputation gathers that output once more.
        again = again + flag(layout.recompute == RECOMPUTE_FULL) * encoder.tensor.gather_s
    communication = LayerCommunication(tensor_s, again, DECODER_COLLECTIVES)
    layer = layer_time(device, communication, shape, layout, replace(machine, host=host))
    return LayersTime(
        count=encoder.count + decoders,
        members=encoder.members,
        forward_s=encoder.forward_s + decoders * layer.forward_s,
        backward_s=encoder.backward_s + decoders * layer.backward_s,
        device_s=encoder.device_s + decoders * layer.device_s,
        communication_s=encoder.communication_s + decoders * layer.communication_s,
        context_expert_share=encoder.context_expert_share,
        weight_s=encoder.weight_s + decoders * (device.forward_s - device.attention_core_s),
        tensor=encoder.tensor,
        embedding_s=encoder.embedding_s + where(decoders > 0, tensor.activation_s, 0.0),  # the decoder's tokens
        tokens=encoder.tokens,
        head_tokens=where(decoders > 0, tokens, encoder.head_tokens),
        head_activation_s=where(
            decoders > 0, tensor.activation_s + tensor.gathered_again_s, encoder.head_activation_s
        ),
    )


def ends_time(layers: LayersTime, shape: Shape, layout: Layout, machine: Machine) -> EndsTime:
    """Returns the time of embedding and vocabulary layer. The vocabulary-parallel embedding's output is
    all-reduced as a layer's is."""
    tokens = layers.head_tokens
    summed = tokens
    if has(shape.masked > 0):
        summed = where(shape.masked > 0, layout.micro_batch * shape.masked, tokens)
    ends = EndsTime(
        embedding_s=embedding_time(layers.tokens, shape, layout, machine),
        embedding_comm_s=layers.embedding_s,
        vocabulary_s=vocabulary_time(tokens, shape, layout, machine),
        vocabulary_comm_s=vocabulary_s(summed, layers.head_activation_s, layers.members, layout, machine),
    )
    return _with_modules(ends, layers, shape, layout, machine) if has(shape.predicted > 0) else ends


def _with_modules(ends: EndsTime, layers: LayersTime, shape: Shape, layout: Layout, machine: Machine) -> EndsTime:
    """Adds the modules of multi-token prediction, which are on the last stage: each embeds the tokens, joins two
    vectors by a product, and passes a layer and the output layer (DeepSeek-V3, arXiv:2412.19437, section 2.2)."""
    h, modules = shape.hidden, shape.predicted
    passes = 2 + layout.trained
    elements = 3 * layers.tokens * h + 2 * h * h / layout.tensor
    joined_s = matrix_s(4 * layers.tokens * h * h / layout.tensor, elements, machine)
    layer_s = (layers.forward_s + layers.backward_s) / layers.count
    device_s, communication_s = layers.device_s / layers.count, layers.communication_s / layers.count
    own_s = device_s + passes * joined_s + ends.embedding_s
    return replace(
        ends,
        vocabulary_s=(1 + modules) * ends.vocabulary_s + modules * own_s,
        vocabulary_comm_s=(1 + modules) * ends.vocabulary_comm_s + modules * communication_s,
        module_host_s=modules * np.maximum(layer_s - device_s - communication_s, 0.0),
    )
