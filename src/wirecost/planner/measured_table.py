"""Measured plans as a table of iteration times, which `wirecost calibrate` and `wirecost validate` read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirecost.costmodel.setup import Setup
from wirecost.csv_text import rows_to_csv
from wirecost.planner.choices import Choice

FRAMEWORK = "wirecost engine"
"""The framework of rows that the engine measured, by which tables find its stack."""


def measured_table(measured: Sequence[tuple[Choice, Setup, float]]) -> str:
    """Returns plans with their measured iteration times in seconds as CSV."""
    rows = [_row(number, *each) for number, each in enumerate(measured, 1)]
    return rows_to_csv(list(rows[0]), rows) if rows else ""


def _row(number: int, choice: Choice, setup: Setup, measured_s: float) -> dict[str, Any]:
    workload, cluster = setup.workload, setup.cluster
    moe = workload.mixture_of_experts
    sharding = (
        "none" if choice.zero == 0 else f"zero{choice.zero}{' (hybrid, inside nodes)' * choice.node_sharding}"
    )
    return {
        "id": f"plan-{number}",
        "source": "wirecost plan --measure",
        "gpu": cluster.accelerator.name,
        "gpus_per_node": cluster.gpus_per_node,
        "intra_link": cluster.intra_node.name,
        "intra_gbytes_s_per_gpu_uni": cluster.intra_node.rate / 8e9,
        "inter_link": cluster.inter_node.name,
        "inter_gbit_s_per_node": cluster.inter_node.rate * cluster.nics_per_node / 1e9,
        "n_gpus": setup.gpus,
        "model": workload.name,
        "n_layers": workload.layers,
        "hidden": workload.hidden,
        "heads": workload.heads,
        "kv_heads": workload.key_value_heads,
        "ffn": workload.ffn,
        "vocab": workload.vocab_size,
        "seq": workload.sequence_length,
        "framework": FRAMEWORK,
        "tp": choice.tp,
        "pp": choice.pp,
        "vpp": choice.vpp,
        "dp": choice.dp,
        "cp": choice.cp,
        "ep": choice.ep,
        "sharding": sharding if choice.zero or not choice.overlap else "ddp",
        "seq_par": "yes" if choice.sp else "no",
        "act_recompute": choice.recompute.value,
        "mbs": choice.mb,
        "gas": setup.accumulation,
        "gbs": setup.global_batch,
        "precision": setup.plan.precision.value,
        "iter_s": measured_s,
        "experts": moe.experts if moe else "",
        "topk": moe.top_k if moe else "",
        "moe_ffn": (moe.expert_ffn_hidden or workload.ffn) if moe else "",
        "shared_experts": moe.shared_experts if moe else "",
        "moe_layers": workload.layers - workload.dense_mlp_layers if moe else "",
    }
