"""Configurations of published models, with only the keys that describe their dimensions, and their parameters.

The numbers in `COUNTED` are those of the models that transformers 5.24.0 builds from these configurations on
PyTorch's meta device. Those in `PUBLISHED` are of the published checkpoints.
"""

from __future__ import annotations

from typing import Any

Configuration = dict[str, Any]


def decoder(
    kind: str, hidden: int, ffn: int, layers: int, heads: tuple[int, int], vocab: int, **others: Any
) -> Configuration:
    """Returns a configuration under the names that most decoders use. `heads` are those of queries and keys."""
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        **others,
    }


def latent(rank: int | None) -> Configuration:
    return {
        "kv_lora_rank": 512,
        "q_lora_rank": rank,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }


TIED = {"tie_word_embeddings": True}
GELU = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
GEMMA = {**GELU, **TIED, "head_dim": 256}
LLAMA_3 = decoder("llama", 4096, 14336, 32, (32, 8), 128256, max_position_embeddings=131072)


def encoder(kind: str, hidden: int, layers: int, vocab: int, **others: Any) -> Configuration:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "vocab_size": vocab,
        "max_position_embeddings": 512,
        "hidden_act": "gelu",
        "type_vocab_size": 2,
        **others,
    }


def t5(
    kind: str, hidden: int, ffn: int, layers: int, heads: int, vocab: int = 32128, **others: Any
) -> Configuration:
    return {
        "model_type": kind,
        "d_model": hidden,
        "d_ff": ffn,
        "d_kv": 64,
        "num_heads": heads,
        "num_layers": layers,
        "num_decoder_layers": layers,
        "vocab_size": vocab,
        "relative_attention_num_buckets": 32,
        "is_encoder_decoder": True,
        **others,
    }


GATED_T5 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

CONFIGURATIONS: dict[str, Configuration] = {
    # Llama and models with its structure
    "llama-2-7b": decoder("llama", 4096, 11008, 32, (32, 32), 32000),
    "llama-2-13b": decoder("llama", 5120, 13824, 40, (40, 40), 32000),
    "llama-2-70b": decoder("llama", 8192, 28672, 80, (64, 8), 32000),
    "llama-3.1-8b": LLAMA_3,
    "llama-3.1-405b": decoder("llama", 16384, 53248, 126, (128, 8), 128256),
    "llama-3.2-1b": decoder("llama", 2048, 8192, 16, (32, 8), 128256, head_dim=64, **TIED),
    "llama-3.2-3b": decoder("llama", 3072, 8192, 28, (24, 8), 128256, head_dim=128, **TIED),
    "llama-3.3-70b": decoder("llama", 8192, 28672, 80, (64, 8), 128256),
    "yi-6b": decoder("llama", 4096, 11008, 32, (32, 4), 64000),
    "yi-34b-as-first-published": decoder("Yi", 7168, 20480, 60, (56, 8), 64000),
    "yi-34b": decoder("llama", 7168, 20480, 60, (56, 8), 64000),
    "smollm2-135m": decoder("llama", 576, 1536, 30, (9, 3), 49152, **TIED),
    "smollm2-1.7b": decoder("llama", 2048, 8192, 24, (32, 32), 49152, **TIED),
    "smollm3-3b": decoder("smollm3", 2048, 11008, 36, (16, 4), 128256, **TIED),
    "mistral-7b": decoder("mistral", 4096, 14336, 32, (32, 8), 32000, sliding_window=4096),
    "mistral-nemo-12b": decoder("mistral", 5120, 14336, 40, (32, 8), 131072, head_dim=128, sliding_window=None),
    "mistral-large-123b": decoder("mistral", 12288, 28672, 88, (96, 8), 32768),
    "falcon3-7b": decoder("llama", 3072, 23040, 28, (12, 4), 131072, head_dim=256),
    # Qwen
    "qwen-7b": {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192, "no_bias": True,
        "tie_word_embeddings": False,
    },
    "qwen2-0.5b": decoder("qwen2", 896, 4864, 24, (14, 2), 151936, **TIED),
    "qwen2-1.5b": decoder("qwen2", 1536, 8960, 28, (12, 2), 151936, **TIED),
    "qwen2-7b": decoder("qwen2", 3584, 18944, 28, (28, 4), 152064),
    "qwen2.5-14b": decoder("qwen2", 5120, 13824, 48, (40, 8), 152064),
    "qwen2.5-32b": decoder("qwen2", 5120, 27648, 64, (40, 8), 152064),
    "qwen2.5-72b": decoder("qwen2", 8192, 29568, 80, (64, 8), 152064, use_sliding_window=False, sliding_window=131072),
    "qwen3-0.6b": decoder("qwen3", 1024, 3072, 28, (16, 8), 151936, head_dim=128, **TIED),
    "qwen3-8b": decoder("qwen3", 4096, 12288, 36, (32, 8), 151936, head_dim=128),
    "qwen3-32b": decoder("qwen3", 5120, 25600, 64, (64, 8), 151936, head_dim=128),
    "qwen1.5-moe-a2.7b": decoder(
        "qwen2_moe", 2048, 5632, 24, (16, 16), 151936, num_experts=60, num_experts_per_tok=4,
        moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1,
    ),
    "qwen2-57b-a14b": decoder(
        "qwen2_moe", 3584, 18944, 28, (28, 4), 151936, num_experts=64, num_experts_per_tok=8,
        moe_intermediate_size=2560, shared_expert_intermediate_size=20480, decoder_sparse_step=1,
    ),
    "qwen3-30b-a3b": decoder(
        "qwen3_moe", 2048, 6144, 48, (32, 4), 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
    ),
    "qwen3-235b-a22b": decoder(
        "qwen3_moe", 4096, 12288, 94, (64, 4), 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=1536, decoder_sparse_step=1, mlp_only_layers=[],
    ),
    # Mixtures of experts
    "mixtral-8x7b": decoder(
        "mixtral", 4096, 14336, 32, (32, 8), 32000, num_local_experts=8, num_experts_per_tok=2
    ),
    "mixtral-8x22b": decoder(
        "mixtral", 6144, 16384, 56, (48, 8), 32768, num_local_experts=8, num_experts_per_tok=2
    ),
    "gpt-oss-20b": decoder(
        "gpt_oss", 2880, 2880, 24, (64, 8), 201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
        sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "gpt-oss-120b": decoder(
        "gpt_oss", 2880, 2880, 36, (64, 8), 201088, head_dim=64, num_local_experts=128, num_experts_per_tok=4,
        sliding_window=128,
    ),
    "olmoe-1b-7b": decoder(
        "olmoe", 2048, 1024, 16, (16, 16), 50304, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False
    ),
    "phi-3.5-moe": decoder(
        "phimoe", 4096, 6400, 32, (32, 8), 32064, num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True, sliding_window=131072,
    ),
    "granite-3.0-1b-a400m": decoder(
        "granitemoe", 1024, 512, 24, (16, 8), 49155, num_local_experts=32, num_experts_per_tok=8, **TIED
    ),
    "granite-3.0-3b-a800m": decoder(
        "granitemoe", 1536, 512, 32, (24, 8), 49155, num_local_experts=40, num_experts_per_tok=8, **TIED
    ),
    "granite-moe-shared": decoder(
        "granitemoeshared", 1024, 512, 24, (16, 8), 49155, num_local_experts=32, num_experts_per_tok=8,
        shared_intermediate_size=768, **TIED,
    ),
    "dbrx": {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "moe_loss_weight": 0.05},
        "tie_word_embeddings": False,
    },
    "grok-1": decoder(
        "grok-1", 6144, 32768, 64, (48, 8), 131072, num_experts=8, num_experts_per_tok=2, hidden_act="gelu",
        **TIED,
    ),
    "llama-4-scout": decoder(
        "llama4_text", 5120, 8192, 48, (40, 8), 202048, head_dim=128, num_local_experts=16, num_experts_per_tok=1,
        intermediate_size_mlp=16384, interleave_moe_layer_step=1, attention_chunk_size=8192,
        max_position_embeddings=10485760,
    ),
    "llama-4-maverick": decoder(
        "llama4_text", 5120, 8192, 48, (40, 8), 202048, head_dim=128, num_local_experts=128,
        num_experts_per_tok=1, intermediate_size_mlp=16384, interleave_moe_layer_step=2, attention_chunk_size=8192,
    ),
    "deepseek-moe-16b": decoder(
        "deepseek", 2048, 10944, 28, (16, 16), 102400, moe_intermediate_size=1408, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1,
    ),
    "deepseek-v2-lite": decoder(
        "deepseek_v2", 2048, 10944, 27, (16, 16), 102400, moe_intermediate_size=1408, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1,
        topk_method="greedy", n_group=1, topk_group=1, **latent(None),
    ),
    "deepseek-v2": decoder(
        "deepseek_v2", 5120, 12288, 60, (128, 128), 102400, moe_intermediate_size=1536, n_routed_experts=160,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, moe_layer_freq=1,
        topk_method="group_limited_greedy", n_group=8, topk_group=3, routed_scaling_factor=16.0, **latent(1536),
    ),
    "deepseek-v3": decoder(
        "deepseek_v3", 7168, 18432, 61, (128, 128), 129280, moe_intermediate_size=2048, n_routed_experts=256,
        n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, moe_layer_freq=1,
        topk_method="noaux_tc", n_group=8, topk_group=4, routed_scaling_factor=2.5, scoring_func="sigmoid",
        num_nextn_predict_layers=1, **latent(1536),
    ),
    "kimi-k2": decoder(
        "kimi_k2", 7168, 18432, 61, (64, 64), 163840, moe_intermediate_size=2048, n_routed_experts=384,
        n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, moe_layer_freq=1,
        topk_method="noaux_tc", n_group=1, topk_group=1, scoring_func="sigmoid", **latent(1536),
    ),
    "glm-4.5-air": decoder(
        "glm4_moe", 4096, 10944, 46, (96, 8), 151552, head_dim=128, moe_intermediate_size=1408,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1,
        attention_bias=True, use_qk_norm=False, n_group=1, topk_group=1, num_nextn_predict_layers=1,
    ),
    "ernie-4.5-21b-a3b": decoder(
        "ernie4_5_moe", 2560, 12288, 28, (20, 4), 103424, moe_num_experts=64, moe_k=6, moe_intermediate_size=1536,
        moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1,
        use_bias=False, **TIED,
    ),
    # Gemma
    "gemma-2b": decoder("gemma", 2048, 16384, 18, (8, 1), 256000, **GEMMA),
    "gemma-7b": decoder("gemma", 3072, 24576, 28, (16, 16), 256000, **GEMMA),
    "gemma-2-2b": decoder("gemma2", 2304, 9216, 26, (8, 4), 256000, sliding_window=4096, **GEMMA),
    "gemma-2-9b": decoder("gemma2", 3584, 14336, 42, (16, 8), 256000, sliding_window=4096, **GEMMA),
    "gemma-2-27b": decoder(
        "gemma2", 4608, 36864, 46, (32, 16), 256000, sliding_window=4096, **{**GEMMA, "head_dim": 128}
    ),
    "gemma-3-1b": decoder("gemma3_text", 1152, 6912, 26, (4, 1), 262144, sliding_window=512, **GEMMA),
    # Other decoders with gated MLPs
    "phi-3-mini": decoder("phi3", 3072, 8192, 32, (32, 32), 32064, sliding_window=2047),
    "phi-3-medium": decoder("phi3", 5120, 17920, 40, (40, 10), 32064),
    "phi-4": decoder("phi3", 5120, 17920, 40, (40, 10), 100352),
    "phi-4-mini": decoder("phi3", 3072, 8192, 32, (24, 8), 200064, **TIED),
    "olmo-1b": decoder("olmo", 2048, 8192, 16, (16, 16), 50304, **TIED),
    "olmo-7b": decoder("olmo", 4096, 11008, 32, (32, 32), 50304),
    "olmo-2-7b": decoder("olmo2", 4096, 11008, 32, (32, 32), 100352),
    "olmo-2-13b": decoder("olmo2", 5120, 13824, 40, (40, 40), 100352),
    "olmo-3-7b": decoder("olmo3", 4096, 11008, 32, (32, 32), 100278, sliding_window=4096),
    "stablelm-3b-4e1t": decoder("stablelm", 2560, 6912, 32, (32, 32), 50304),
    "stablelm-2-1.6b": decoder("stablelm", 2048, 5632, 24, (32, 32), 100352, use_qkv_bias=True),
    "stablelm-2-12b": decoder(
        "stablelm", 5120, 13824, 40, (32, 8), 100352, qk_layernorm=True, use_parallel_residual=True
    ),
    "internlm2-7b": decoder("internlm2", 4096, 14336, 32, (32, 8), 92544, bias=False),
    "internlm2-20b": decoder("internlm2", 6144, 16384, 48, (48, 8), 92544, bias=False),
    "internlm3-8b": decoder("internlm3", 4096, 10240, 48, (32, 2), 128512, head_dim=128, bias=False, qkv_bias=False),
    "baichuan2-7b": decoder("baichuan", 4096, 11008, 32, (32, 32), 125696, num_key_value_heads=None),
    "baichuan2-13b": decoder(
        "baichuan", 5120, 13696, 40, (40, 40), 125696, num_key_value_heads=None, max_position_embeddings=None,
        model_max_length=4096,
    ),
    "chatglm3-6b": {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28,
        "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
        "padded_vocab_size": 65024, "seq_length": 8192, "add_bias_linear": False, "add_qkv_bias": True,
        "rmsnorm": True, "tie_word_embeddings": False,
    },
    "glm-4-9b": {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40,
        "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
        "padded_vocab_size": 151552, "seq_length": 131072, "add_bias_linear": False, "add_qkv_bias": True,
        "rmsnorm": True, "tie_word_embeddings": False,
    },
    "glm-4-9b-hf": decoder("glm", 4096, 13696, 40, (32, 2), 151552, head_dim=128, attention_bias=True),
    "glm-4-9b-0414": decoder("glm4", 4096, 13696, 40, (32, 2), 151552, head_dim=128, attention_bias=True),
    "granite-3.0-8b": decoder("granite", 4096, 12800, 40, (32, 8), 49155, **TIED),
    "command-r": decoder("cohere", 8192, 22528, 40, (64, 64), 256000, **TIED),
    "command-r-plus": decoder("cohere", 12288, 33792, 64, (96, 8), 256000, use_qk_norm=True, **TIED),
    "command-r7b": decoder("cohere2", 4096, 14336, 32, (32, 8), 256000, sliding_window=4096, **TIED),
    "minicpm-2b": decoder("minicpm", 2304, 5760, 40, (36, 36), 122753, tie_word_embeddings=None),
    "minicpm3-4b": decoder(
        "minicpm3", 2560, 6400, 62, (40, 40), 73448, tie_word_embeddings=None, q_lora_rank=768, kv_lora_rank=256,
        qk_nope_head_dim=64, qk_rope_head_dim=32,
    ),
    "minitron-4b": decoder("nemotron", 3072, 9216, 32, (24, 8), 256000, head_dim=128, hidden_act="relu2"),
    "nemotron-4-340b": decoder("nemotron", 18432, 73728, 96, (96, 8), 256000, head_dim=192, hidden_act="relu2"),
    "starcoder2-3b": decoder(
        "starcoder2", 3072, 12288, 30, (24, 2), 49152, use_bias=True, sliding_window=4096, **{**GELU, **TIED}
    ),
    "starcoder2-15b": decoder(
        "starcoder2", 6144, 24576, 40, (48, 4), 49152, use_bias=True, sliding_window=4096,
        **{**GELU, "tie_word_embeddings": False},
    ),
    "exaone-3.5-7.8b": {
        **decoder("exaone", 4096, 14336, 0, (32, 8), 102400, activation_function="silu"),
        "num_hidden_layers": None, "num_layers": 32,
    },
    "exaone-4.0-1.2b": decoder("exaone4", 2048, 4096, 30, (32, 8), 102400, head_dim=64, sliding_window=None, **TIED),
    "seed-oss-36b": decoder(
        "seed_oss", 5120, 27648, 64, (80, 8), 155136, head_dim=128, attention_bias=True, attention_out_bias=False
    ),
    "ernie-4.5-0.3b": decoder("ernie4_5", 1024, 3072, 18, (16, 2), 103424, head_dim=128, use_bias=False, **TIED),
    "arcee-4.5b": decoder("arcee", 2560, 18432, 36, (20, 4), 128004, head_dim=128, hidden_act="relu2"),
    # Decoders with MLPs of two matrices
    "gpt-2-xl": {
        "model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 50257,
        "activation_function": "gelu_new",
    },
    "starcoder": {
        "model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "n_positions": 8192,
        "n_inner": 24576, "vocab_size": 49152, "multi_query": True, "activation_function": "gelu_pytorch_tanh",
    },
    "gpt-neo-1.3b": {
        "model_type": "gpt_neo", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257,
        "max_position_embeddings": 2048, "window_size": 256, "activation_function": "gelu_new",
    },
    "gpt-neox-20b": {
        **decoder("gpt_neox", 6144, 24576, 44, (64, 64), 50432), "hidden_act": "gelu_fast",
        "max_position_embeddings": 2048,
    },
    "pythia-1b": {**decoder("gpt_neox", 2048, 8192, 16, (8, 8), 50304), "hidden_act": "gelu"},
    "pythia-12b": {**decoder("gpt_neox", 5120, 20480, 36, (40, 40), 50688), "hidden_act": "gelu"},
    "gpt-j-6b": {
        "model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_positions": 2048, "vocab_size": 50400,
        "activation_function": "gelu_new", "rotary_dim": 64, "tie_word_embeddings": False,
    },
    "codegen-350m": {
        "model_type": "codegen", "n_layer": 20, "n_embd": 1024, "n_head": 16, "n_positions": 2048,
        "vocab_size": 51200, "activation_function": "gelu_new", "rotary_dim": 32, "tie_word_embeddings": False,
    },
    "opt-125m": {
        "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 50272, "max_position_embeddings": 2048,
        "activation_function": "relu", "do_layer_norm_before": True, "word_embed_proj_dim": 768,
    },
    "opt-350m": {
        "model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 50272, "max_position_embeddings": 2048,
        "activation_function": "relu", "do_layer_norm_before": False, "word_embed_proj_dim": 512,
    },
    "opt-66b": {
        "model_type": "opt", "hidden_size": 9216, "ffn_dim": 36864, "num_hidden_layers": 64,
        "num_attention_heads": 72, "vocab_size": 50272, "max_position_embeddings": 2048,
        "activation_function": "relu", "do_layer_norm_before": True, "word_embed_proj_dim": 9216,
    },
    "bloom-7b1": {
        "model_type": "bloom", "hidden_size": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880,
        "seq_length": 2048,
    },
    "bloom-176b": {
        "model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112, "vocab_size": 250880,
        "seq_length": 2048,
    },
    "mpt-7b": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
        "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True},
    },
    "mpt-30b": {
        "model_type": "mpt", "d_model": 7168, "n_heads": 64, "n_layers": 48, "expansion_ratio": 4,
        "max_seq_len": 8192, "vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True},
    },
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "vocab_size": 65024, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False,
        "bias": False, "alibi": False,
    },
    "falcon-40b": {
        "model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_kv_heads": 8, "vocab_size": 65024, "multi_query": True, "parallel_attn": True,
        "new_decoder_architecture": True, "bias": False, "alibi": False,
    },
    "falcon-rw-1b": {
        "model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
        "vocab_size": 50304, "multi_query": False, "parallel_attn": False, "new_decoder_architecture": False,
        "bias": True, "alibi": True,
    },
    "falcon-180b": {
        "model_type": "falcon", "hidden_size": 14848, "num_hidden_layers": 80, "num_attention_heads": 232,
        "num_kv_heads": 8, "vocab_size": 65024, "multi_query": True, "parallel_attn": True,
        "new_decoder_architecture": True, "bias": False, "alibi": False,
    },
    "phi-1.5": {
        **decoder("phi", 2048, 8192, 24, (32, 32), 51200), "hidden_act": "gelu_new", "max_position_embeddings": 2048
    },
    "phi-2": {
        **decoder("phi", 2560, 10240, 32, (32, 32), 51200), "hidden_act": "gelu_new", "max_position_embeddings": 2048
    },
    # Encoders
    "bert-base": encoder("bert", 768, 12, 30522),
    "bert-large": encoder("bert", 1024, 24, 30522),
    "roberta-base": encoder("roberta", 768, 12, 50265, max_position_embeddings=514, type_vocab_size=1),
    "roberta-large": encoder("roberta", 1024, 24, 50265, max_position_embeddings=514, type_vocab_size=1),
    "xlm-roberta-large": encoder("xlm-roberta", 1024, 24, 250002, max_position_embeddings=514, type_vocab_size=1),
    "camembert-base": encoder("camembert", 768, 12, 32005, max_position_embeddings=514, type_vocab_size=1),
    "distilbert-base": {
        "model_type": "distilbert", "n_layers": 6, "dim": 768, "n_heads": 12, "hidden_dim": 3072,
        "vocab_size": 30522, "max_position_embeddings": 512, "activation": "gelu",
    },
    "electra-small": {
        **encoder("electra", 256, 12, 30522, embedding_size=128), "num_attention_heads": 4, "intermediate_size": 1024
    },
    "electra-base": encoder("electra", 768, 12, 30522, embedding_size=768),
    "electra-large": encoder("electra", 1024, 24, 30522, embedding_size=1024),
    "deberta-base": encoder(
        "deberta", 768, 12, 50265, type_vocab_size=0, relative_attention=True, max_relative_positions=-1,
        position_biased_input=False, pos_att_type="c2p|p2c",
    ),
    "deberta-v3-base": encoder(
        "deberta-v2", 768, 12, 128100, type_vocab_size=0, relative_attention=True, position_buckets=256,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False,
    ),
    "deberta-v2-xlarge": encoder(
        "deberta-v2", 1536, 24, 128100, type_vocab_size=0, relative_attention=True, position_buckets=256,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False,
        conv_kernel_size=3, conv_act="gelu",
    ),
    "modernbert-base": {
        **encoder("modernbert", 768, 22, 50368), "intermediate_size": 1152, "hidden_activation": "gelu",
        "max_position_embeddings": 8192, "global_attn_every_n_layers": 3, "local_attention": 128,
    },
    "modernbert-large": {
        **encoder("modernbert", 1024, 28, 50368), "intermediate_size": 2624, "hidden_activation": "gelu",
        "max_position_embeddings": 8192, "global_attn_every_n_layers": 3, "local_attention": 128,
    },
    # Encoders with decoders
    "t5-large": t5("t5", 1024, 4096, 24, 16),
    "t5-11b": t5("t5", 1024, 65536, 24, 128, d_kv=128),
    "flan-t5-base": t5("t5", 768, 2048, 12, 12, **GATED_T5),
    "flan-t5-xxl": t5("t5", 4096, 10240, 24, 64, **GATED_T5),
    "ul2": t5("t5", 4096, 16384, 32, 16, d_kv=256, **{**GATED_T5, "feed_forward_proj": "gated-silu"}),
    "mt5-base": t5("mt5", 768, 2048, 12, 12, 250112, **GATED_T5),
    "umt5-small": t5("umt5", 512, 1024, 8, 6, 256384, **GATED_T5),
    # Models of 2025, and further sizes of others
    "apertus-8b": decoder("apertus", 4096, 21504, 32, (32, 8), 131072, hidden_act="xielu"),
    "apertus-70b": decoder("apertus", 8192, 43008, 80, (64, 8), 131072, hidden_act="xielu"),
    "dots.llm1": decoder(
        "dots1", 4096, 10944, 62, (32, 32), 152064, moe_intermediate_size=1408, n_routed_experts=128,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, scoring_func="sigmoid",
        norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1, topk_group=1,
    ),
    "hunyuan-7b": decoder(
        "hunyuan_v1_dense", 4096, 14336, 32, (32, 8), 128256, head_dim=128, use_qk_norm=True, **TIED,
    ),
    "hunyuan-a13b": decoder(
        "hunyuan_v1_moe", 4096, 3072, 32, (32, 8), 128167, head_dim=128, use_qk_norm=True,
        num_experts=64, moe_topk=[8] * 32, moe_intermediate_size=[3072] * 32, num_shared_expert=[1] * 32,
        use_mixed_mlp_moe=True, moe_layer_num_skipped=0, **TIED,
    ),
    "minimax-m2": decoder(
        "minimax_m2", 3072, 1536, 62, (48, 8), 200064, head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, scoring_func="sigmoid", use_qk_norm=True, qk_norm_type="per_layer",
        use_mtp=True, mtp_transformer_layers=1, num_mtp_modules=3, shared_intermediate_size=0,
    ),
    "mimo-7b": decoder(
        "mimo", 4096, 11008, 36, (32, 8), 151680, head_dim=128, attention_bias=True,
        use_sliding_window=False, num_nextn_predict_layers=1,
    ),
    "ling-lite": decoder(
        "bailing_moe", 2048, 1408, 28, (16, 4), 126464, moe_intermediate_size=1408, num_experts=64,
        num_shared_experts=2, num_experts_per_tok=6, norm_topk_prob=True, first_k_dense_replace=0,
        use_bias=False, use_qkv_bias=False,
    ),
    "ling-mini-2.0": decoder(
        "bailing_moe_v2", 2048, 5120, 20, (16, 4), 157184, head_dim=128, moe_intermediate_size=512,
        num_experts=256, num_shared_experts=1, moe_shared_expert_intermediate_size=512,
        num_experts_per_tok=8, first_k_dense_replace=1, norm_topk_prob=True, score_function="sigmoid",
        n_group=8, topk_group=4, use_qk_norm=True, use_bias=False, use_qkv_bias=False,
    ),
    "glm-4.5": decoder(
        "glm4_moe", 5120, 12288, 92, (96, 8), 151552, head_dim=128, moe_intermediate_size=1536,
        n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3,
        attention_bias=True, use_qk_norm=True, n_group=1, topk_group=1, num_nextn_predict_layers=1,
    ),
    "qwen3-coder-480b": decoder(
        "qwen3_moe", 6144, 8192, 62, (96, 8), 151936, head_dim=128, moe_intermediate_size=2560,
        num_experts=160, num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "ministral-8b": decoder("mistral", 4096, 12288, 36, (32, 8), 131072, head_dim=128, sliding_window=32768),
    "gemma-3-27b": decoder(
        "gemma3_text", 5376, 21504, 62, (32, 16), 262208, head_dim=128,
        hidden_activation="gelu_pytorch_tanh", sliding_window=1024, sliding_window_pattern=6, **TIED,
    ),
    "gemma-3-4b": decoder(
        "gemma3_text", 2560, 10240, 34, (8, 4), 262208, head_dim=256,
        hidden_activation="gelu_pytorch_tanh", sliding_window=1024, sliding_window_pattern=6, **TIED,
    ),
    "command-a": decoder(
        "cohere2", 12288, 36864, 64, (96, 8), 256000, head_dim=128, sliding_window=4096,
        sliding_window_pattern=4, **TIED,
    ),
    "ernie-4.5-300b-a47b": decoder(
        "ernie4_5_moe", 8192, 28672, 54, (64, 8), 103424, moe_num_experts=64, moe_k=8,
        moe_intermediate_size=3584, moe_num_shared_experts=0, moe_layer_start_index=3,
        moe_layer_end_index=53, moe_layer_interval=1, use_bias=False, num_nextn_predict_layers=1,
    ),
}  # fmt: skip

COUNTED: dict[str, int] = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "yi-6b": 6_061_035_520,
    "yi-34b": 34_388_917_248,
    "smollm2-135m": 134_515_008,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-large-123b": 122_610_069_504,
    "falcon3-7b": 7_455_550_464,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "olmoe-1b-7b": 6_919_161_856,
    "phi-3.5-moe": 41_873_153_344,
    "granite-3.0-1b-a400m": 1_334_628_352,
    "granite-3.0-3b-a800m": 3_298_793_472,
    "granite-moe-shared": 1_391_251_456,
    "llama-4-scout": 107_769_861_120,
    "llama-4-maverick": 400_711_848_960,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "kimi-k2": 1_026_408_209_408,
    "glm-4.5-air": 106_852_245_504,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "olmo-1b": 1_176_764_416,
    "olmo-7b": 6_888_095_744,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-3-7b": 7_298_011_136,
    "stablelm-3b-4e1t": 2_795_443_200,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-2-12b": 12_143_185_920,
    "internlm3-8b": 8_804_241_408,
    "glm-4-9b-hf": 9_399_951_360,
    "glm-4-9b-0414": 9_400_279_040,
    "granite-3.0-8b": 8_170_848_256,
    "command-r": 34_980_831_232,
    "command-r-plus": 103_810_674_688,
    "command-r7b": 8_028_033_024,
    "minicpm3-4b": 4_073_875_968,
    "minitron-4b": 4_190_509_056,
    "nemotron-4-340b": 341_029_195_776,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-15b": 15_957_889_024,
    "exaone-4.0-1.2b": 1_279_391_488,
    "seed-oss-36b": 36_151_104_512,
    "ernie-4.5-0.3b": 360_748_032,
    "arcee-4.5b": 4_619_184_640,
    "gpt-2-xl": 1_557_611_200,
    "starcoder": 15_517_456_384,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-1b": 1_011_781_632,
    "pythia-12b": 11_846_072_320,
    "gpt-j-6b": 6_050_882_784,
    "codegen-350m": 356_712_448,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-66b": 65_719_701_504,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-rw-1b": 1_311_625_216,
    "falcon-180b": 178_557_088_768,
    "phi-1.5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "roberta-base": 124_697_433,
    "roberta-large": 355_412_057,
    "xlm-roberta-large": 560_142_482,
    "camembert-base": 110_655_493,
    "distilbert-base": 66_985_530,
    "electra-small": 13_549_057,
    "electra-base": 109_483_009,
    "electra-large": 335_142_913,
    "deberta-base": 139_244_121,
    "deberta-v3-base": 184_551_780,
    "deberta-v2-xlarge": 887_085_156,
    "modernbert-base": 149_655_232,
    "modernbert-large": 395_881_664,
    "t5-large": 737_668_096,
    "t5-11b": 11_307_321_344,
    "apertus-8b": 8_053_338_176,
    "apertus-70b": 70_599_864_480,
    "dots.llm1": 142_774_373_888,
    "hunyuan-7b": 7_504_932_864,
    "hunyuan-a13b": 80_393_183_232,
    "minimax-m2": 228_689_748_992,
    "glm-4.5": 352_797_814_784,
    "qwen3-coder-480b": 480_154_875_392,
    "ministral-8b": 8_019_808_256,
    "gemma-3-27b": 27_009_346_304,
    "gemma-3-4b": 3_880_263_168,
    "command-a": 111_057_580_032,
}
"""Trainable parameters by `transformers`."""

PUBLISHED: dict[str, int] = {
    "yi-34b-as-first-published": 34_388_917_248,
    "qwen-7b": 7_721_324_544,
    "dbrx": 131_596_523_520,
    "grok-1": 315_684_820_992,  # the arrays of the checkpoint; announced as 314 B
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-v2-lite": 15_706_484_224,
    "internlm2-7b": 7_737_708_544,
    "internlm2-20b": 19_861_149_696,
    "baichuan2-7b": 7_505_973_248,
    "baichuan2-13b": 13_896_668_160,
    "chatglm3-6b": 6_243_584_000,
    "glm-4-9b": 9_399_951_360,
    "minicpm-2b": 2_724_880_896,
    "exaone-3.5-7.8b": 7_818_448_896,
    "flan-t5-base": 247_577_856,
    "flan-t5-xxl": 11_135_332_352,
    "ul2": 19_591_209_984,
    "mt5-base": 582_401_280,
    "umt5-small": 306_601_984,
    "ernie-4.5-300b-a47b": 299_484_160_000,  # announced as 300 B
    "ling-lite": 16_801_974_272,  # announced as 16.8 B
    "ling-mini-2.0": 16_255_638_528,  # announced as 16 B
    "mimo-7b": 7_622_619_136,  # 7.83 B with its module of multi-token prediction
}
"""Parameters of published checkpoints of models that `transformers` has no class for, or builds with other
ties of embeddings."""
