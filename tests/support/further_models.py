"""Configurations of further types, and their parameters. See `support.published_models`.

Most have the dimensions of a published model, or the defaults of its class in `transformers`. `cohere2-moe`,
`granite-swa-2b`, `granite-moe-swa`, `kolibri-1-78b` and `flint-40b` are examples of their type only.
"""

from __future__ import annotations

from support.published_models import GELU, TIED, Configuration, decoder, latent

_PHI = {
    "model_type": "phi-msft", "n_embd": 2560, "n_head": 32, "n_head_kv": None, "n_inner": None, "n_layer": 32,
    "n_positions": 2048, "rotary_dim": 32, "vocab_size": 51200, "activation_function": "gelu_new",
    "tie_word_embeddings": False,
}  # fmt: skip
_WINDOW = ["sliding_attention"] * 3 + ["full_attention"]
_RELU = {"hidden_act": "relu2"}

CONFIGURATIONS: dict[str, Configuration] = {
    # Dense decoders
    "internlm-7b": decoder("internlm", 4096, 11008, 32, (32, 32), 103168, bias=True, num_key_value_heads=None),
    "internlm-20b": decoder(
        "internlm", 5120, 13824, 60, (40, 40), 103168, bias=False, rotary={"base": 10000, "type": "dynamic"}
    ),
    "orion-14b": decoder("orion", 5120, 15360, 40, (40, 40), 84608),
    "xverse-13b": decoder("xverse", 5120, 13824, 40, (40, 40), 100278, num_key_value_heads=None),
    "aquila2-7b": decoder("aquila", 4096, 11008, 32, (32, 32), 100008),
    "skywork-13b": decoder("skywork", 4608, 12288, 52, (36, 36), 65519),
    "jais-13b": {
        "model_type": "jais", "n_embd": 5120, "n_head": 40, "n_layer": 40, "n_inner": 13653, "n_positions": 2048,
        "vocab_size": 84992, "activation_function": "swiglu", "position_embedding_type": "alibi",
    },
    "phi-2-as-first-published": _PHI,
    "phixtral-4x2.8b": {**_PHI, "num_local_experts": 4, "num_experts_per_tok": 2, "flash_attn": False},
    "ministral-8b-2410": decoder(
        "ministral", 4096, 12288, 36, (32, 8), 131072, head_dim=128, sliding_window=32768
    ),
    "ministral-3-3b": decoder("ministral3", 3072, 9216, 26, (32, 8), 131072, head_dim=128, **TIED),
    "ministral-3-8b": decoder("ministral3", 4096, 14336, 34, (32, 8), 131072, head_dim=128),
    "devstral-2-123b": decoder("ministral3", 12288, 28672, 88, (96, 8), 131072, head_dim=128, sliding_window=None),
    "cwm-32b": decoder(
        "cwm", 6144, 21504, 64, (48, 8), 128256, head_dim=128, sliding_window=8192, mlp_bias=False,
        layer_types=["full_attention", *_WINDOW[:3]] * 16,
    ),
    "helium-1-2b": decoder("helium", 2560, 7040, 24, (20, 20), 48000, head_dim=128, attention_bias=False),
    "hyperclova-x-seed-think-14b": decoder(
        "hyperclovax", 6144, 14336, 38, (48, 8), 110592, head_dim=128, use_post_norm=True, attention_bias=False
    ),
    "granite-swa-2b": decoder(
        "granite_swa", 2560, 8192, 24, (20, 4), 100352, sliding_window=128,
        layer_types=["full_attention", *_WINDOW[:3]] * 6, **TIED,
    ),
    "iquest-coder-40b": decoder("iquestcoder", 5120, 27648, 80, (40, 8), 76800, head_dim=128),
    "youtu-llm-2b": decoder("youtu", 2048, 6144, 32, (16, 16), 128256, **latent(1536), **TIED),
    "vaultgemma-1b": decoder(
        "vaultgemma", 1152, 6912, 26, (4, 4), 256000, head_dim=256, sliding_window=512,
        layer_types=["sliding_attention", "full_attention"] * 13, **GELU, **TIED,
    ),
    "nanochat-d32": decoder("nanochat", 2048, 8192, 32, (16, 16), 65536, **_RELU),
    "jais-2-8b": decoder(
        "jais2", 3328, 26624, 32, (26, 26), 150272, head_dim=128, attention_bias=True, mlp_bias=True, **_RELU
    ),
    "bitnet-b1.58-2b": decoder("bitnet", 2560, 6912, 30, (20, 5), 128256, **_RELU, **TIED),
    "persimmon-8b": {
        **decoder("persimmon", 4096, 16384, 36, (64, 64), 262144), "hidden_act": "relu2", "qk_layernorm": True
    },
    "gpt": {
        "model_type": "openai-gpt", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 512,
        "vocab_size": 40478, "afn": "gelu",
    },
    "biogpt": {
        "model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 42384, "max_position_embeddings": 1024, "hidden_act": "gelu",
    },
    "xglm-564m": {
        "model_type": "xglm", "d_model": 1024, "ffn_dim": 4096, "num_layers": 24, "attention_heads": 16,
        "vocab_size": 256008, "max_position_embeddings": 2048, "activation_function": "gelu",
    },
    "gpt-neox-japanese-2.7b": {
        "model_type": "gpt_neox_japanese", "hidden_size": 2560, "intermediate_multiple_size": 4,
        "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
        "hidden_act": "gelu",
    },
    # Mixtures of experts
    "hy3": decoder(
        "hy_v3", 4096, 13312, 80, (64, 8), 120832, head_dim=128, num_experts=192, num_experts_per_tok=8,
        num_shared_experts=1, moe_intermediate_size=1536, expert_hidden_dim=1536, first_k_dense_replace=1,
        router_scaling_factor=2.826, qk_norm=True, num_nextn_predict_layers=1,
    ),
    "solar-open-100b": decoder(
        "solar_open", 4096, 10240, 48, (64, 8), 196608, head_dim=128, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=1280, first_k_dense_replace=0, norm_topk_prob=True,
    ),
    "sarvam-30b": decoder(
        "sarvam_moe", 4096, 8192, 19, (64, 4), 262144, head_dim=64, num_experts=128, num_shared_experts=1,
        num_experts_per_tok=6, moe_intermediate_size=1024, first_k_dense_replace=1, use_qk_norm=True,
        score_function="sigmoid", routed_scaling_factor=2.5,
    ),
    "sarvam-105b": decoder(
        "sarvam_mla", 4096, 16384, 32, (64, 64), 262144, head_dim=576, num_experts=128, num_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=1, q_head_dim=192,
        **latent(None),
    ),
    "glm-4.7-flash": decoder(
        "glm4_moe_lite", 2048, 10240, 47, (20, 20), 154880, n_routed_experts=64, n_shared_experts=1,
        num_experts_per_tok=4, moe_intermediate_size=1536, first_k_dense_replace=1, topk_method="noaux_tc",
        n_group=1, topk_group=1, routed_scaling_factor=1.8, num_nextn_predict_layers=1,
        **{**latent(768), "qk_nope_head_dim": 192, "v_head_dim": 256},
    ),
    "a.x-k1": decoder(
        "axk1", 7168, 18432, 61, (64, 64), 163840, n_routed_experts=192, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=1, n_group=8, topk_group=4,
        **latent(1536),
    ),
    "mistral-small-4-119b": decoder(
        "mistral4", 4096, 12288, 36, (32, 32), 131072, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=4, moe_intermediate_size=2048, first_k_dense_replace=0, n_group=1, topk_group=1,
        **{**latent(1024), "kv_lora_rank": 256, "qk_nope_head_dim": 64},
    ),
    "k-exaone-236b": decoder(
        "exaone_moe", 6144, 18432, 48, (64, 8), 153600, head_dim=128, num_experts=128, num_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=1, sliding_window=128,
        sliding_window_pattern=4, layer_types=_WINDOW * 12, num_nextn_predict_layers=1,
        mlp_layer_types=["dense"] + ["sparse"] * 47,
    ),
    "cohere2-moe": decoder(
        "cohere2_moe", 8192, 22528, 40, (64, 64), 256000, head_dim=128, num_experts=8, num_experts_per_tok=2,
        sliding_window=4096, sliding_window_pattern=4, num_shared_experts=0, **TIED,
    ),
    "flexolmo-7x7b": decoder("flex_olmo", 4096, 11008, 32, (32, 32), 100352, num_experts=7, num_experts_per_tok=5),
    "mellum-2-12b": decoder(
        "mellum", 2304, 7168, 28, (32, 4), 98304, head_dim=128, num_local_experts=64, num_experts_per_tok=8,
        moe_intermediate_size=896, sliding_window=1024, layer_types=_WINDOW * 7,
        mlp_layer_types=["sparse"] * 28, norm_topk_prob=True,
    ),
    "kolibri-1-78b": decoder(
        "kolibri1", 2560, 512, 50, (48, 4), 128000, head_dim=128, num_local_experts=384, num_experts_per_tok=6,
        moe_intermediate_size=512, shared_expert_intermediate_size=512, sliding_window=513,
    ),
    "flint-40b": decoder(
        "flint", 2048, 6144, 49, (32, 4), 150144, head_dim=128, num_experts=256, num_experts_per_tok=6,
        moe_intermediate_size=512, shared_expert_intermediate_size=1024, mlp_only_layers=[0, 1],
        norm_topk_prob=True, sliding_window=513,
    ),
    "granite-moe-swa": decoder(
        "granitemoe_swa", 1024, 512, 24, (16, 8), 49152, num_local_experts=32, num_experts_per_tok=8,
        sliding_window=128, shared_intermediate_size=0, **TIED,
    ),
    "aria-25b": decoder(
        "aria_text", 2560, 1664, 28, (20, 20), 100352, moe_num_experts=64, moe_topk=6, moe_num_shared_experts=2
    ),
}  # fmt: skip

COUNTED: dict[str, int] = {
    "ministral-8b-2410": 8_019_808_256,
    "ministral-3-3b": 3_429_006_336,
    "ministral-3-8b": 8_489_553_920,
    "devstral-2-123b": 125_025_988_608,
    "cwm-32b": 32_581_097_472,
    "helium-1-2b": 2_172_643_840,
    "hyperclova-x-seed-think-14b": 14_748_112_896,
    "granite-swa-2b": 2_144_463_840,
    "iquest-coder-40b": 39_794_283_520,
    "youtu-llm-2b": 1_961_560_064,
    "vaultgemma-1b": 1_038_741_120,
    "nanochat-d32": 1_879_048_192,
    "jais-2-8b": 8_090_401_280,
    "bitnet-b1.58-2b": 2_412_820_480,
    "persimmon-8b": 9_397_175_296,
    "gpt": 116_534_784,
    "biogpt": 346_763_264,
    "xglm-564m": 564_463_616,
    "gpt-neox-japanese-2.7b": 2_598_837_760,
    "hy3": 295_033_528_320,
    "solar-open-100b": 102_651_793_408,
    "sarvam-30b": 32_152_648_064,
    "sarvam-105b": 106_031_763_456,
    "glm-4.7-flash": 29_943_390_976,
    "a.x-k1": 518_983_052_288,
    "mistral-small-4-119b": 118_972_826_624,
    "k-exaone-236b": 236_571_150_336,
    "cohere2-moe": 190_004_928_512,
    "flexolmo-7x7b": 33_270_665_216,
    "mellum-2-12b": 12_149_923_072,
    "kolibri-1-78b": 78_103_055_360,
    "flint-40b": 39_785_287_456,
    "granite-moe-swa": 1_334_625_664,
    "aria-25b": 24_869_091_840,
}
"""Trainable parameters by `transformers`."""

PUBLISHED: dict[str, int] = {
    "internlm-7b": 7_321_948_160,
    "internlm-20b": 20_088_714_240,
    "orion-14b": 14_498_703_360,
    "xverse-13b": 13_715_031_040,
    "aquila2-7b": 7_295_537_152,
    "skywork-13b": 13_854_113_280,
    "jais-13b": 13_020_811_920,
    "phi-2-as-first-published": 2_779_683_840,
    "phixtral-4x2.8b": 7_814_405_120,
}
"""Sums over the tensors of the models' own code, which `transformers` doesn't have. XVERSE, Aquila and Skywork have
the tensors of a Llama, and InternLM-7B those of a Llama with biases of attention."""
