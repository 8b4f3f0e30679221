"""Models for Megatron-Core in a study, and what is refused before anything starts."""

import json
import sys

import pytest

from wirecost.errors import SpecError
from wirecost.spec import Study, validate
from wirecost.spec.megatron import MegatronJob, settings_from, settings_of


def study(**entry: object) -> Study:
    keys = {"name": "mcore", "engine": "megatron", "workload": "gpt-tiny", "plan": "ddp", "micro_batch": 2}
    data = {"name": "s", "workloads": [{**keys, **entry}], "networks": ["emulated-1g"], "hosts": [2]}
    return validate(Study, data, "s.yaml")


def test_a_model_for_megatron_becomes_its_command() -> None:
    (job,) = study(plan="tp2-bf16", micro_batches=4).jobs
    assert job.arguments[:3] == (sys.executable, "-m", "wirecost.megatron")
    settings = settings_of(job)
    assert settings is not None
    assert (settings.name, settings.workload.name, settings.plan.tensor_parallel) == ("mcore", "gpt-tiny", 2)
    assert (settings.micro_batch, settings.micro_batches) == (2, 4)
    assert settings.as_job() == job


def test_a_study_with_megatron_is_kept_as_it_is() -> None:
    first = study()
    assert Study.model_validate(first.model_dump(mode="json")) == first


def test_other_commands_are_no_models_for_megatron() -> None:
    data = {"name": "s", "workloads": [{"name": "a", "command": "python train.py"}], "networks": ["emulated-1g"]}
    (job,) = validate(Study, data, "s.yaml").jobs
    assert settings_of(job) is None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"plan": "zero3"}, "data_parallel zero3 is not supported"),
        ({"plan": "cp2"}, "context_parallel"),
        ({"plan": "tp2-sp"}, "transformer_engine"),
        ({"plan": "pp2-gpipe"}, "pipeline_schedule gpipe"),
        ({"plan": "ddp-int8"}, "gradient_traffic int8"),
        ({"workload": "mixtral-8x7b"}, "mixture_of_experts"),
        ({"workload": "t5-tiny"}, "positions relative"),
        ({"plan": {"name": "tp3", "tensor_parallel": 3}}, "heads 4 do not divide over tensor_parallel 3"),
        ({"plan": {"name": "pp3", "pipeline_parallel": 3}}, "4 layers do not divide over pipeline_parallel 3"),
        ({"engine": "deepspeed"}, "megatron"),
        ({"micro_batch": 0}, "micro_batch"),
    ],
)
def test_what_megatron_cannot_train_is_refused(entry: dict[str, object], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        study(**entry)


def test_settings_that_are_no_json_are_refused() -> None:
    with pytest.raises(SpecError, match="is no JSON: Expecting value"):
        settings_from("no json")
    with pytest.raises(SpecError, match="keys and values"):
        settings_from("[]")
    with pytest.raises(SpecError, match="micro_batch"):
        settings_from(json.dumps({"workload": "gpt-tiny", "plan": "ddp"}))
    assert isinstance(settings_from('{"workload": "gpt-tiny", "plan": "ddp", "micro_batch": 1}'), MegatronJob)
