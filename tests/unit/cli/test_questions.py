"""Questions about machines, models and strategies that people ask in public threads get a number with an interval.

docs/how-to/questions.md names the threads.
"""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner

from wirecost.cli import application

A10 = (
    "{gpus_per_node: 2, nodes: 2, intra_node: pcie4, inter_node: {rate: 25 Gb/s}, gpu: {architecture: ampere, "
    "memory_bytes: 24e9, memory_bandwidth_Bps: 600e9, peak_flops: {bf16: 125e12}}}"
)
GPT_126M = "{layers: 12, hidden: 768, heads: 12, vocab_size: 51200, sequence_length: 1024}"
V100 = "{gpu: V100S, gpus_per_node: 1, nodes: 1, intra_node: pcie3, inter_node: tcp-10g}"
QUESTIONS = {
    "What bandwidth between nodes does ZeRO-3 need?": "need gpt-3-175b --cluster selene --gpus 512 --data-parallel "
    "zero3 --micro-batch 2 -B 1024 --recompute full --fraction 0.2",
    "Is it the network that makes two nodes of two A10 slow?": "predict qwen2-1.5b --cluster 4xa10-25g --gpus 8 "
    "--data-parallel zero3 --micro-batch 1 -B 16 --recompute full",
    "How long would one of these nodes take?": f"predict qwen2-1.5b --cluster '{A10}' --gpus 2 --data-parallel zero3",
    "Does a 72B model get faster if it is sharded inside nodes only?": "predict qwen2.5-72b --cluster dgx-a100-80gb "
    "--gpus 64 --data-parallel zero3 --sharding-group node --recompute full",
    "And with a second copy of the weights in each node (hpZ)?": "predict qwen2.5-72b --cluster dgx-a100-80gb "
    "--gpus 64 --data-parallel zero3 --sharding-group hpz --recompute full",
    "What does hpZ save below 100 Gb/s?": "predict llama-3-70b --cluster 8xa100-25g --gpus 64 --data-parallel zero3 "
    "--sharding-group hpz --recompute full",
    "Why does LoRA with ZeRO-3 over 10 Gb/s take 20 times as long on two nodes?": "predict qwen2-7b --cluster "
    "8xa100-10g --gpus 16 --data-parallel zero3 --lora-rank 8 --sequence-length 2048 -B 64",
    "How does ZeRO-3 of the text part of a multimodal model scale?": "predict llama-2-13b --cluster 8xa100-100g "
    "--gpus 32 --data-parallel zero3",
    "Does ZeRO-1 hide its communication on H800?": "predict llama-2-7b --cluster hgx-h800 --gpus 32 --data-parallel "
    "zero1 --tp 4",
    "How slow is BERT over 10 Gb/s on V100?": "predict bert-large --cluster aws-p3-2xlarge --gpus 8 --data-parallel "
    "ddp --precision fp16",
    "What bandwidth does BERT need there?": "need bert-large --cluster aws-p3-2xlarge --gpus 8 --data-parallel ddp "
    "--precision fp16 --fraction 0.2",
    "How bad is training without EFA?": "predict llama-3-8b --cluster aws-p5-48xlarge --gpus 128 --data-parallel zero3 "
    "--bandwidth '100 Gb/s'",
    "What is the MFU with 200 Gb/s?": "predict llama-3-8b --cluster dgx-h100 --gpus 128 --bandwidth '200 Gb/s'",
    "What is the MFU with 400 Gb/s?": "predict llama-3-8b --cluster dgx-h100 --gpus 128 --bandwidth '400 Gb/s'",
    "How long does a GPT of 126M parameters take on one V100S?": f"predict '{GPT_126M}' --cluster '{V100}' --gpus 1 "
    "--precision fp16 --micro-batch 8",
    "What does tensor parallelism over 24 GPUs cost?": "predict gpt-3-175b --cluster dgx-h100 --gpus 24 --tp 24",
    "Does expert parallelism pay across nodes?": "predict qwen3-30b-a3b --cluster dgx-h100 --gpus 64 --ep 16 -B 128",
    "Does it pay across the trays of a rack?": "predict deepseek-v3 --cluster gb200-nvl72 --gpus 144 --ep 16 --pp 9 "
    "-B 576",
    "How long do collectives take on ROCm?": "predict llama-3-70b --cluster mi300x-roce --gpus 64 --data-parallel zero3",
    "What does MXFP8 bring on Blackwell?": "predict llama-3-70b --cluster dgx-b200 --gpus 64 --tp 4 --matrix-precision "
    "mxfp8",
    "And NVFP4?": "predict llama-3-70b --cluster gb300-nvl72 --gpus 72 --tp 4 --matrix-precision nvfp4",
    "What does async TP hide?": "predict llama-3-70b --cluster dgx-h100 --gpus 64 --tp 8 --tensor-overlap",
    "Does DualPipe hide the experts' exchange?": "predict deepseek-v3 --cluster hgx-h800 --gpus 2048 --pp 16 --ep 64 "
    "--pipeline-schedule dualpipe --matrix-precision fp8-blockwise -B 15360",
    "What does a zero-bubble schedule save?": "predict llama-2-70b --cluster dgx-h100 --gpus 64 --tp 4 --pp 8 "
    "--pipeline-schedule zb-h1",
    "What does Ulysses cost with long sequences?": "predict llama-3-8b --cluster dgx-h100 --gpus 64 --cp 8 "
    "--context-communication a2a --sequence-length 131072 --recompute full",
    "What do windows save in Gemma 2 and GPT-OSS?": "predict gpt-oss-120b --cluster dgx-h200 --gpus 64 --ep 8",
    "How fast is a TPU v5p?": "predict llama-3-70b --cluster tpu-v5p-pod --gpus 64 --data-parallel zero3",
    "How fast is Trainium 2?": "predict llama-3-8b --cluster aws-trn2-48xlarge --gpus 64 --data-parallel zero3",
    "And Gaudi 3?": "predict llama-3-8b --cluster gaudi3-hls --gpus 16 --data-parallel zero3",
    "And an Ascend 910B?": "predict llama-2-7b --cluster atlas-800t-a2 --gpus 16 --data-parallel zero1",
}
"""A command for each question."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_gets_a_number_with_an_interval_and_its_basis(question: str) -> None:
    words = shlex.split(QUESTIONS[question])
    result = CliRunner().invoke(application(), [*words, "--format", "json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    answer = json.loads(result.stdout)
    if words[0] == "need":
        assert answer["value"] > 0
        assert answer["low"] <= answer["value"]
        assert answer["high"] is None or answer["high"] >= answer["value"]
        assert answer["basis"]
    else:
        prediction, interval = answer["prediction"], answer["interval"]
        assert 0 < interval["low_ns"] < prediction["iteration_s"] * 1e9 < interval["high_ns"]
        assert 0 <= prediction["comm_fraction_low"] <= prediction["comm_fraction_high"] <= 1
        assert prediction["basis"]
