"""Manifests for Kubernetes hold to the rules of their types, and one pod runs commands in another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from wirecost.errors import SpecError
from wirecost.launch.pods import PodServer, end
from wirecost.launch.ports import free_port
from wirecost.launch.remote_agent import STARTED
from wirecost.spec import Study, parse_yaml, validate
from wirecost.study.allocation import Allocation
from wirecost.study.kubernetes import KubernetesOptions, manifest, write_manifests

TEXT = """\
name: My.Study_1
workloads: [gpt-tiny]
networks: [{name: real, native: {}}, emulated-1g]
plans: [ddp]
hosts: [1, 2]
ranks_per_host: 4
device: cpu
scaling: [{kind: weak, micro_batch: 2}]
"""
STUDY = validate(Study, parse_yaml(TEXT, "study"), "study")
GPUS = validate(Study, parse_yaml(TEXT.replace("device: cpu", "device: cuda"), "study"), "study")
OPTIONS = KubernetesOptions("registry.example.com/wirecost:1", "results", "training", "16", "64Gi")

LABEL = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
QUANTITY = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?$"}


def record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the schema of an object with these keys and no others."""
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


# The fields that a manifest uses, as the Kubernetes API (v1, batch/v1) and JobSet's (v1alpha2) define them.
METADATA = record({"name": LABEL}, {"namespace": LABEL})
ENVIRONMENT = {
    "oneOf": [
        record({"name": {"type": "string"}, "value": {"type": "string"}}),
        record(
            {
                "name": {"type": "string"},
                "valueFrom": record({"secretKeyRef": record({"name": LABEL, "key": {"type": "string"}})}),
            }
        ),
    ]
}
CONTAINER = record(
    {
        "name": LABEL,
        "image": {"type": "string", "minLength": 1},
        "command": array({"type": "string"}),
        "args": array({"type": "string"}),
        "env": array(ENVIRONMENT),
        "ports": array(record({"containerPort": {"type": "integer", "minimum": 1, "maximum": 65535}})),
        "resources": record(
            {
                "limits": {
                    "type": "object",
                    "propertyNames": {"enum": ["cpu", "memory", "nvidia.com/gpu"]},
                    "additionalProperties": QUANTITY,
                }
            }
        ),
        "volumeMounts": array(record({"name": LABEL, "mountPath": {"type": "string", "pattern": "^/"}})),
    },
    {"securityContext": record({"capabilities": record({"add": array({"enum": ["SYS_ADMIN", "NET_ADMIN"]})})})},
)
VOLUME = {
    "oneOf": [
        record({"name": LABEL, "persistentVolumeClaim": record({"claimName": LABEL})}),
        record({"name": LABEL, "configMap": record({"name": LABEL})}),
        record({"name": LABEL, "emptyDir": record({"medium": {"const": "Memory"}})}),
    ]
}
POD = record({"restartPolicy": {"const": "Never"}, "containers": array(CONTAINER), "volumes": array(VOLUME)})
COUNT = {"type": "integer", "minimum": 1}
JOB = record(
    {
        "parallelism": COUNT, "completions": COUNT, "completionMode": {"const": "Indexed"},
        "backoffLimit": {"type": "integer", "minimum": 0}, "template": record({"spec": POD}),
    }
)  # fmt: skip
JOB_SET = {
    "network": record({"enableDNSHostnames": {"type": "boolean"}, "subdomain": LABEL}),
    "failurePolicy": record({"maxRestarts": {"type": "integer", "minimum": 0}}),
}
ARGUMENTS = {name: CONTAINER["properties"][name] for name in ("command", "args", "env")}
TRAINER = "trainer.kubeflow.org/v1alpha1"
# A container of a runtime has no command of its own here, and Kubeflow Trainer demands its name and label.
NODE = CONTAINER | {"required": ["name", "image", "ports", "volumeMounts"]}
NODE_POD = record({**POD["properties"], "containers": array(NODE)})
NODE_JOB = record({**JOB["properties"], "template": record({"spec": NODE_POD})})
ANCESTOR = record({"labels": record({"trainer.kubeflow.org/trainjob-ancestor-step": {"const": "trainer"}})})
SCHEMAS = {
    "Secret": record(
        {"apiVersion": {"const": "v1"}, "kind": {"const": "Secret"}, "metadata": METADATA, "stringData": {"type": "object", "additionalProperties": {"type": "string"}}}
    ),
    "ConfigMap": record(
        {"apiVersion": {"const": "v1"}, "kind": {"const": "ConfigMap"}, "metadata": METADATA, "data": {"type": "object", "additionalProperties": {"type": "string"}}}
    ),
    "JobSet": record(
        {
            "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"}, "kind": {"const": "JobSet"}, "metadata": METADATA,
            "spec": record(
                {
                    **JOB_SET,
                    "replicatedJobs": array(record({"name": LABEL, "replicas": COUNT, "template": record({"spec": JOB})})),
                }
            ),
        }
    ),
    "TrainingRuntime": record(
        {
            "apiVersion": {"const": TRAINER}, "kind": {"const": "TrainingRuntime"}, "metadata": METADATA,
            "spec": record(
                {
                    "mlPolicy": record({"numNodes": COUNT}),
                    "template": record(
                        {
                            "spec": record(
                                {
                                    **JOB_SET,
                                    "replicatedJobs": array(
                                        record(
                                            {
                                                "name": {"const": "node"}, "replicas": {"const": 1},
                                                "template": record({"metadata": ANCESTOR, "spec": NODE_JOB}),
                                            }
                                        )
                                    ),
                                }
                            )
                        }
                    ),
                }
            ),
        }
    ),
    "TrainJob": record(
        {
            "apiVersion": {"const": TRAINER}, "kind": {"const": "TrainJob"},
            # RFC 1035: the first character is a letter
            "metadata": record({"name": LABEL | {"pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}}, {"namespace": LABEL}),
            "spec": record(
                {
                    "runtimeRef": record(
                        {
                            "apiGroup": {"const": "trainer.kubeflow.org"}, "kind": {"const": "TrainingRuntime"},
                            "name": LABEL,
                        }
                    ),
                    "trainer": record(
                        {**ARGUMENTS, "numNodes": COUNT, "resourcesPerNode": CONTAINER["properties"]["resources"]}
                    ),
                }
            ),
        }
    ),
}  # fmt: skip


@pytest.mark.parametrize("study", [STUDY, GPUS])
@pytest.mark.parametrize("options", [OPTIONS, KubernetesOptions("image", "results")])
@pytest.mark.parametrize("shape", ["1x4", "2x4", "2x4-emulated"])
def test_a_manifest_holds_to_its_schema(study: Study, options: KubernetesOptions, shape: str) -> None:
    documents = manifest(study, Allocation.named(shape), options)
    assert [d["kind"] for d in documents] == ["Secret", "ConfigMap", "JobSet"]
    for document in documents:
        jsonschema.validate(document, SCHEMAS[document["kind"]])
    job_set = documents[2]
    job = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]
    nodes = Allocation.named(shape).nodes
    assert job["parallelism"] == job["completions"] == nodes
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    given, hosts, out = container["args"]
    assert (given, out) == (shape, f"/results/{study.name}")
    # JobSet's names of pods: JOBSET-JOB-INDEX-POD.SUBDOMAIN
    name = job_set["metadata"]["name"]
    assert hosts.split(",") == [f"{name}-hosts-0-{n}.{name}" for n in range(nodes)]
    assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in container["volumeMounts"]}
    gpus = container["resources"]["limits"].get("nvidia.com/gpu")
    assert gpus == (str(Allocation.named(shape).tasks_per_node) if study is GPUS else None)
    assert ("securityContext" in container) == shape.endswith("emulated")
    # The study in the manifest is the one that was asked for.
    text = documents[1]["data"]["study.yaml"]
    assert validate(Study, parse_yaml(text, "s"), "s") == study


@pytest.mark.parametrize("study", [STUDY, GPUS])
@pytest.mark.parametrize("shape", ["1x4", "2x4", "2x4-emulated"])
def test_a_train_job_holds_to_its_schema_and_names_its_pods(study: Study, shape: str) -> None:
    options = replace(OPTIONS, kind="trainjob")
    documents = manifest(study, Allocation.named(shape), options)
    assert [d["kind"] for d in documents] == ["Secret", "ConfigMap", "TrainingRuntime", "TrainJob"]
    for document in documents:
        jsonschema.validate(document, SCHEMAS[document["kind"]])
    runtime, job = documents[2:]
    nodes, name = Allocation.named(shape).nodes, job["metadata"]["name"]
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == name
    assert job["spec"]["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"] == nodes
    # Kubeflow Trainer's JobSet has the name of the TrainJob: JOBSET-JOB-INDEX-POD.SUBDOMAIN
    _, hosts, _ = job["spec"]["trainer"]["args"]
    assert hosts.split(",") == [f"{name}-node-0-{n}.{name}" for n in range(nodes)]
    assert runtime["spec"]["template"]["spec"]["network"]["subdomain"] == name
    (container,) = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["name"] == "node"
    gpus = job["spec"]["trainer"]["resourcesPerNode"]["limits"].get("nvidia.com/gpu")
    assert gpus == (str(Allocation.named(shape).tasks_per_node) if study is GPUS else None)


def test_manifests_are_written_for_each_shape_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    written = write_manifests(STUDY, tmp_path, OPTIONS)
    assert [(w.shape, w.experiments) for w in written] == [
        ("1x4", 1),
        ("1x4-emulated", 1),
        ("2x4", 1),
        ("2x4-emulated", 1),
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kubernetes"]
    for each in written:
        assert each.path.stat().st_mode & 0o077 == 0
        assert [d["kind"] for d in yaml.safe_load_all(each.path.read_text())] == ["Secret", "ConfigMap", "JobSet"]
    # Each manifest has a token of its own.
    tokens = {re.findall(r"token: (\w{64})\n", each.path.read_text())[0] for each in written}
    assert len(tokens) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (KubernetesOptions("i", "Results"), "--volume-claim: 'Results' isn't taken by Kubernetes"),
        (KubernetesOptions("i", "r", "a b"), "--namespace: 'a b'"),
        (KubernetesOptions("i", "r", None, "many"), "--pod-cpus: 'many'"),
        (KubernetesOptions("i", "r", None, None, "64 GB"), "--pod-memory: '64 GB'"),
        (KubernetesOptions("i\nj", "r"), "--container-image: is no name"),
        (KubernetesOptions("i", "r", kind="pods"), "--manifest: unknown kind of manifest 'pods'"),
    ],
)
def test_options_that_kubernetes_does_not_take_are_refused(options: KubernetesOptions, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        manifest(STUDY, Allocation.named("1x4"), options)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodServer]:
    monkeypatch.setenv("WIRECOST_POD_TOKEN", "secret")
    server = PodServer(("127.0.0.1", free_port()), b"secret")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def sent(server: PodServer, command: list[str], token: str = "secret") -> subprocess.CompletedProcess[bytes]:
    code = (
        "import os, sys; from wirecost.launch.pods import run_at\nos._exit(run_at('127.0.0.1', int(sys.argv[1])))"
    )
    job = json.dumps({"command": command, "environment": {"HELLO": "there"}}) + "\n"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(server.server_address[1])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"WIRECOST_POD_TOKEN": token},
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(job.encode())
        process.stdin.flush()
        # The input stays open: the command ends by itself.
        output, errors = process.stdout.read(), process.stderr.read()
        process.stdin.close()
        return subprocess.CompletedProcess(command, process.wait(30), output, errors)


def test_a_pod_runs_the_command_of_another(pod: PodServer) -> None:
    done = sent(pod, ["sh", "-c", "echo hello $HELLO; exit 7"])
    assert (done.returncode, done.stdout) == (7, f"{STARTED}\nhello there\n".encode())
    killed = sent(pod, ["sh", "-c", "kill -9 $$"])
    assert killed.returncode == 128 + 9


def test_a_pod_runs_nothing_without_the_token(pod: PodServer, tmp_path: Path) -> None:
    done = sent(pod, ["touch", str(tmp_path / "made")], token="guess")
    assert done.returncode == 1
    assert b"ended the connection" in done.stderr
    assert not (tmp_path / "made").exists()


def test_a_pod_ends_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRECOST_POD_TOKEN", "secret")
    with PodServer(("127.0.0.1", free_port()), b"secret") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        end("127.0.0.1", server.server_address[1])
        thread.join(30)
        assert not thread.is_alive()
