"""Keys of small Hugging Face configurations, whose models are counted on PyTorch's meta device."""

from __future__ import annotations

import pytest

from wirecost.costmodel.shape import shape_of
from wirecost.spec import Workload

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 200,
    "max_position_embeddings": 64,
}
LATENT = {"kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}
MIXTURE = {"moe_intermediate_size": 40, "num_experts_per_tok": 2}


def check_windows(workload: Workload, window: int, windowed: int, layers: int) -> None:
    """Asserts that `windowed` of `layers` layers have a window of so many tokens."""
    shape = shape_of(workload)
    assert (shape.window, shape.layers) == (window, layers)
    assert shape.window_share == pytest.approx(windowed / layers)
