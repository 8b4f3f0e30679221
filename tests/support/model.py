"""Short ways to a prediction for the model's tests."""

from __future__ import annotations

from typing import Any

from wirecost.costmodel.setup import Setup, setup
from wirecost.prediction.predict import Prediction, predict
from wirecost.spec import Plan, load_spec, with_bandwidth, with_nodes


def made(workload: str = "llama-3-8b", cluster: str = "dgx-h100", **options: Any) -> Setup:
    """Returns a setup. Options that are keys of Plan go to the plan, the others to `setup`."""
    plan = {key: options.pop(key) for key in list(options) if key in Plan.model_fields}
    rate, gpus = options.pop("bandwidth", None), options.get("gpus")
    machine = with_nodes(with_bandwidth(load_spec("cluster", cluster), rate), gpus)
    return setup(
        load_spec("workload", workload),
        Plan.model_validate({"name": "t", "precision": "bf16", **plan}),
        machine,
        **options,
    )


def predicted(*args: Any, **options: Any) -> Prediction:
    return predict(made(*args, **options))


def seconds(result: Prediction) -> float:
    return float(result.times.total_s)


def comm_fraction(result: Prediction) -> float:
    return float(result.times.comm_fraction)


ROW = {
    "id": "x",
    "gpu": "A100-80GB-SXM",
    "gpus_per_node": "8",
    "n_gpus": "16",
    "model": "GPT",
    "n_layers": "24",
    "hidden": "2048",
    "heads": "16",
    "ffn": "8192",
    "vocab": "50257",
    "seq": "1024",
    "framework": "Megatron-DeepSpeed",
    "tp": "2",
    "pp": "2",
    "dp": "4",
    "mbs": "2",
    "gas": "4",
    "gbs": "32",
    "sharding": "none",
    "act_recompute": "full",
    "precision": "fp16",
    "iter_s": "1.0",
    "intra_link": "NVLink3",
    "inter_link": "InfiniBand HDR x4",
    "inter_gbit_s_per_node": "800",
}
