from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
import yaml

from support.planning import question
from wirecost.errors import SpecError
from wirecost.planner.answer import answer, setup_of_choice
from wirecost.planner.choices import Choice
from wirecost.planner.emit import TARGETS, check_target, deepspeed, megatron, nemo, torchrun, torchtitan
from wirecost.planner.emit.job import EmittedJob
from wirecost.planner.emit.targets import restricted
from wirecost.planner.limits import Limits
from wirecost.planner.request import Request
from wirecost.spec import MatrixPrecision, Recompute, load_spec, stack_named

MEGATRON_ARGUMENTS = {
    # Megatron-LM of the time of Megatron-Core 0.16.1 (pretrain_gpt.py --help)
    "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split", "--bf16",
    "--context-parallel-size", "--decoder-last-pipeline-num-layers", "--disable-bias-linear",
    "--expert-model-parallel-size", "--ffn-hidden-size", "--fp16", "--fp4-format", "--fp8-format",
    "--fp8-recipe", "--global-batch-size", "--mtp-num-layers",
    "--group-query-attention", "--hidden-size", "--kv-channels", "--kv-lora-rank", "--max-position-embeddings",
    "--micro-batch-size", "--moe-ffn-hidden-size", "--moe-layer-freq", "--moe-router-topk",
    "--moe-shared-expert-intermediate-size", "--moe-token-dispatcher-type", "--multi-latent-attention",
    "--normalization", "--num-attention-heads", "--num-distributed-optimizer-instances", "--num-experts",
    "--num-layers", "--num-query-groups", "--num-virtual-stages-per-pipeline-rank", "--overlap-grad-reduce",
    "--overlap-param-gather", "--pipeline-model-parallel-size", "--position-embedding-type", "--q-lora-rank",
    "--qk-head-dim", "--qk-pos-emb-head-dim", "--recompute-granularity", "--recompute-method",
    "--recompute-num-layers", "--seq-length", "--sequence-parallel", "--swiglu", "--tensor-model-parallel-size",
    "--untie-embeddings-and-output-weights", "--use-distributed-optimizer", "--v-head-dim",
}  # fmt: skip
TORCHTITAN_OPTIONS = {
    # torchtitan 0.3.0 (torchtitan/config/configs.py)
    "--module", "--config", "--training.seq_len", "--training.local_batch_size", "--training.global_batch_size",
    "--training.disable_cuda_graphs", "--parallelism.data_parallel_replicate_degree",
    "--parallelism.data_parallel_shard_degree", "--parallelism.tensor_parallel_degree",
    "--parallelism.context_parallel_degree", "--parallelism.expert_parallel_degree",
    "--parallelism.fsdp_reshard_after_forward", "--parallelism.no-enable_sequence_parallel",
    "--parallelism.pipeline_parallel_degree", "--parallelism.pipeline_parallel_schedule",
    "--parallelism.pipeline_parallel_microbatch_size", "--parallelism.pipeline_parallel_layers_per_stage",
    "--parallelism.pipeline_parallel_first_stage_less_layers",
    "--parallelism.pipeline_parallel_last_stage_less_layers",
}  # fmt: skip
DEEPSPEED_KEYS = {
    # DeepSpeed 0.19.8 (deepspeed/runtime/constants.py, runtime/zero/config.py)
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization", "bf16",
    "fp16", "activation_checkpointing",
}  # fmt: skip
NEMO_KEYS = {
    # Megatron-Bridge 0.3.1 and the configurations of Megatron-Core 0.16.1 that it has
    "model": {
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
        "context_parallel_size", "expert_model_parallel_size", "sequence_parallel", "seq_length",
        "recompute_granularity", "recompute_method", "recompute_num_layers", "bf16", "fp16",
        "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    },
    "train": {"micro_batch_size", "global_batch_size"},
    "ddp": {
        "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather",
        "num_distributed_optimizer_instances",
    },
    "optimizer": {"use_distributed_optimizer"},
}  # fmt: skip
PLAIN = Choice(tp=2, pp=4, vpp=2, dp=8, mb=2, zero=1, overlap=True, sp=True)


def job(
    choice: Choice = PLAIN, workload: str = "llama-3-70b", gpus: int = 64, stack: str = "generic"
) -> EmittedJob:
    asked = question(workload, "dgx-h100", gpus, 512, stacks=(stack,))
    return EmittedJob(choice, setup_of_choice(asked, choice, asked.stacks[0]))


CHOICES = [
    PLAIN,
    Choice(dp=64, mb=1, zero=3, overlap=True, recompute=Recompute.FULL),
    Choice(tp=4, dp=16, mb=1, zero=1, overlap=True, sp=False, node_sharding=True, recompute=Recompute.SELECTIVE),
    Choice(tp=2, pp=2, cp=4, dp=4, mb=4, zero=2, overlap=False, sp=True),
]


@pytest.mark.parametrize("choice", CHOICES)
def test_megatron_gets_arguments_that_it_has(choice: Choice) -> None:
    arguments = megatron.arguments(job(choice))
    assert {argument[0] for argument in arguments} <= MEGATRON_ARGUMENTS
    values = {argument[0]: argument[1:] for argument in arguments}
    assert values["--tensor-model-parallel-size"] == (str(choice.tp),)
    assert values["--micro-batch-size"] == (str(choice.mb),)
    assert ("--sequence-parallel" in values) == choice.sp
    assert ("--use-distributed-optimizer" in values) == (choice.zero >= 1)
    assert values["--global-batch-size"] == ("512",)


def test_megatron_gets_experts_and_latent_attention() -> None:
    choice = Choice(pp=16, ep=8, dp=8, mb=1, zero=1, overlap=True)
    arguments = megatron.arguments(job(choice, "deepseek-v3", 128))
    values = {argument[0]: argument[1:] for argument in arguments}
    assert set(values) <= MEGATRON_ARGUMENTS
    assert values["--num-experts"] == ("256",)
    assert values["--expert-model-parallel-size"] == ("8",)
    assert values["--moe-layer-freq"] == ("'([0]*3+[1]*58)'",)
    assert values["--kv-lora-rank"] == ("512",)
    assert values["--mtp-num-layers"] == ("1",)
    # 61 layers on 16 stages: 4 on each but the last.
    assert values["--decoder-last-pipeline-num-layers"] == ("1",)


@pytest.mark.parametrize(
    ("precision", "arguments"),
    [
        (None, set()),
        ("fp8", {("--fp8-format", "hybrid")}),
        ("fp8-blockwise", {("--fp8-format", "hybrid"), ("--fp8-recipe", "blockwise")}),
        ("mxfp8", {("--fp8-format", "hybrid"), ("--fp8-recipe", "mxfp8")}),
        ("nvfp4", {("--fp4-format", "e2m1")}),
    ],
)
def test_megatron_gets_the_format_of_products(precision: str | None, arguments: set[tuple[str, str]]) -> None:
    of_precision = None if precision is None else MatrixPrecision(precision)
    assert set(megatron.low_precision(of_precision)) == arguments
    names = {argument[0] for argument in megatron.low_precision(of_precision)}
    assert names <= MEGATRON_ARGUMENTS


def test_distributed_optimizer_instances_are_the_replicas_of_shards() -> None:
    # 8 GPUs a node, of which TP takes 4: shards of 2 ranks, 16 / 2 instances.
    choice = Choice(tp=4, dp=16, mb=1, zero=1, overlap=True, sp=True, node_sharding=True)
    assert ("--num-distributed-optimizer-instances", "8") in megatron.arguments(job(choice))
    assert nemo.config(job(choice))["ddp"]["num_distributed_optimizer_instances"] == 8


@pytest.mark.parametrize("choice", CHOICES)
def test_torchtitan_gets_options_that_it_has_and_degrees_that_make_up_the_gpus(choice: Choice) -> None:
    arguments = torchtitan.arguments(job(choice))
    *options, checkpointing = arguments
    values = {option[0]: option[1:] for option in options}
    assert set(values) <= TORCHTITAN_OPTIONS
    assert checkpointing[0] in (
        "activation_checkpoint:none",
        "activation_checkpoint:selective",
        "activation_checkpoint:full",
    )
    degrees = 1
    for name in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel"):
        degrees *= int(values[f"--parallelism.{name}_degree"][0])
    degrees *= int(values.get("--parallelism.pipeline_parallel_degree", ("1",))[0])
    assert degrees == 64


@pytest.mark.parametrize("choice", CHOICES)
def test_torchtitans_own_parser_takes_the_options(choice: Choice) -> None:
    configs = pytest.importorskip("torchtitan.config.configs")
    tyro = pytest.importorskip("tyro")
    words = [word for option in torchtitan.arguments(job(choice))[2:-1] for word in option]
    for section, kind in (("training", configs.TrainingConfig), ("parallelism", configs.ParallelismConfig)):
        own: list[str] = []
        for option in torchtitan.arguments(job(choice))[2:-1]:
            if option[0].startswith(f"--{section}."):
                own += [option[0].replace(f"{section}.", ""), *option[1:]]
        tyro.cli(kind, args=own)
    assert words


@pytest.mark.parametrize("choice", [replace(CHOICES[1], zero=stage) for stage in (0, 1, 2, 3)])
def test_deepspeed_gets_keys_that_it_has_and_batches_that_multiply(choice: Choice) -> None:
    config = json.loads(deepspeed.write(job(choice)))
    assert set(config) <= DEEPSPEED_KEYS
    assert config["zero_optimization"]["stage"] == choice.zero
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * choice.dp
    assert config["train_batch_size"] == product == 512


def test_deepspeeds_own_parser_takes_the_configuration() -> None:
    config = pytest.importorskip("deepspeed.runtime.zero.config")
    written = deepspeed.config(job(CHOICES[1]))["zero_optimization"]
    assert config.DeepSpeedZeroConfig(**written).stage == 3


@pytest.mark.parametrize("choice", CHOICES)
def test_nemo_gets_keys_that_it_has(choice: Choice) -> None:
    config = yaml.safe_load(nemo.write(job(choice)))
    assert set(config) == set(NEMO_KEYS)
    for section, keys in NEMO_KEYS.items():
        assert set(config[section]) <= keys
    assert config["model"]["tensor_model_parallel_size"] == choice.tp


def test_megatron_cores_own_configuration_takes_the_keys() -> None:
    module = pytest.importorskip("megatron.core.transformer.transformer_config")
    torch = pytest.importorskip("torch")
    keys = {k: v for k, v in nemo.config(job())["model"].items() if k != "seq_length"}
    built = module.TransformerConfig(
        num_layers=80, hidden_size=8192, num_attention_heads=64, pipeline_dtype=torch.bfloat16, **keys
    )
    assert built.tensor_model_parallel_size == PLAIN.tp


def test_torchruns_own_parser_takes_its_line() -> None:
    run = pytest.importorskip("torch.distributed.run")
    line = next(line for line in torchrun.write(job()).splitlines() if not line.startswith("#"))
    parsed = run.get_args_parser().parse_args(shlex.split(line)[1:])
    assert (parsed.nnodes, parsed.nproc_per_node) == ("8", "8")
    assert parsed.training_script == "train.py"


def test_the_mesh_of_torchrun_has_all_ranks() -> None:
    shape = re.search(r'init_device_mesh\("cuda", \(([\d, ]+)\)', torchrun.write(job()))
    assert shape is not None
    sizes = [int(size) for size in shape[1].split(",")]
    assert sizes == [4, 8, 1, 2]


def test_a_model_that_is_no_decoder_is_refused_for_megatron() -> None:
    with pytest.raises(SpecError, match="no decoder"):
        megatron.write(job(Choice(dp=8, mb=1), "bert-large", 8))


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(SpecError, match="unknown framework 'colossal'"):
        check_target("colossal")


@pytest.mark.parametrize("name", TARGETS)
def test_a_search_for_a_framework_finds_plans_that_it_can_run(name: str) -> None:
    asked = question("llama-3-8b", "dgx-h100", 16, 64, stacks=("megatron-core", "fsdp-flash"))
    request = restricted(Request(asked, Limits(), {}), name, named=False)
    found = answer(request.question).found
    can = TARGETS[name].can
    assert len(found)
    assert set(found.column("zero")) <= set(can.zero)
    if not can.pipeline:
        assert found.column("pp").max() == 1
    if TARGETS[name].stack:
        assert request.question.stacks == (stack_named(TARGETS[name].stack),)


def test_every_published_preset_can_be_written_or_is_refused_in_one_line() -> None:
    written = 0
    for name in ("gpt-3-175b", "mixtral-8x7b", "qwen3-30b-a3b", "gemma-2-9b", "phi-4", "falcon-7b"):
        workload = load_spec("workload", name)
        asked = question(workload, "dgx-h100", 64, 512)
        result = answer(asked)
        if not result.ranked:
            continue
        setup = result.ranked[0].prediction.setup
        try:
            text = megatron.write(EmittedJob(result.ranked[0].choice, setup))
        except SpecError as error:
            assert "\n" not in str(error)
            continue
        assert str(workload.hidden) in text
        written += 1
    assert written >= 4
