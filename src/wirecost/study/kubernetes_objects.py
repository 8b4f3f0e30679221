"""The Kubernetes objects that start the pods of a study, one pod for each host.

A JobSet (jobset.x-k8s.io/v1alpha2) gives its pods stable names in DNS and ends them together. Kubeflow Trainer
makes one of a TrainJob (trainer.kubeflow.org/v1alpha1) and the TrainingRuntime that it names. A runtime of its own
is written beside it, because its versions 2.0 to 2.2 differ in how a TrainJob changes the pods of a runtime.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wirecost.launch.pods import PORT, TOKEN
from wirecost.study.allocation import Allocation
from wirecost.study.pod import STUDY

RESULTS = "/results"
"""Path in each pod at which the volume of the results is mounted."""
LONGEST_NAME = 40
"""Longest name of a JobSet here. Kubernetes adds to it for the names of pods, which have at most 63 characters."""
MOST_RESTARTS = 3
TRAINER_JOB = "node"
"""Name that Kubeflow Trainer demands of the job and the container that train."""


@dataclass(frozen=True)
class Pods:
    """The pods that run the experiments of one shape.

    Attributes:
        study: name of the study.
        image: image with wirecost and `python3`.
        claim: name of the PersistentVolumeClaim for the results.
        limits: resources of a pod by their names in Kubernetes.
    """

    study: str
    allocation: Allocation
    image: str
    claim: str
    limits: dict[str, str]

    @property
    def name(self) -> str:
        """Name of all objects. It begins with a letter, as the name of a TrainJob must."""
        base = re.sub(r"[^a-z0-9-]+", "-", f"{self.study}-{self.allocation.name}".lower()).strip("-")
        return f"wirecost-{base}"[:LONGEST_NAME].rstrip("-")

    def command(self, job: str) -> dict[str, Any]:
        """Returns command, arguments and environment of a container.

        Args:
            job: name of the job in the JobSet, which the pods' names in DNS contain.
        """
        hosts = [f"{self.name}-{job}-0-{number}.{self.name}" for number in range(self.allocation.nodes)]
        return {
            "command": ["python3", "-m", "wirecost.study.pod"],
            "args": [self.allocation.name, ",".join(hosts), f"{RESULTS}/{self.study}"],
            "env": [
                {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": self.name, "key": "token"}}},
                {"name": "PYTHONUNBUFFERED", "value": "1"},
            ],
        }

    def specification(self, container: str, more: dict[str, Any]) -> dict[str, Any]:
        """Returns the specification of a pod.

        Args:
            container: name of its container.
            more: further keys of the container.
        """
        described: dict[str, Any] = {
            "name": container,
            "image": self.image,
            **more,
            "ports": [{"containerPort": PORT}],
            "volumeMounts": [
                {"name": "results", "mountPath": RESULTS},
                {"name": "study", "mountPath": str(STUDY.parent)},
                {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - NCCL's between ranks of a pod
            ],
        }
        if self.allocation.is_emulated:
            # Hosts are network namespaces of the pod.
            described["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN", "NET_ADMIN"]}}
        return {
            "restartPolicy": "Never",
            "containers": [described],
            "volumes": [
                {"name": "results", "persistentVolumeClaim": {"claimName": self.claim}},
                {"name": "study", "configMap": {"name": self.name}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            ],
        }


def _job_set_specification(pods: Pods, job: str, pod: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Returns the specification of a JobSet. `template`: further keys of the template of its job."""
    return {
        "network": {"enableDNSHostnames": True, "subdomain": pods.name},
        "failurePolicy": {"maxRestarts": MOST_RESTARTS},
        "replicatedJobs": [
            {
                "name": job,
                "replicas": 1,
                "template": {
                    **template,
                    "spec": {
                        "parallelism": pods.allocation.nodes,
                        "completions": pods.allocation.nodes,
                        "completionMode": "Indexed",
                        "backoffLimit": 0,
                        "template": {"spec": pod},
                    },
                },
            }
        ],
    }


def job_set(pods: Pods, place: dict[str, str]) -> list[dict[str, Any]]:
    """Returns a JobSet that starts the pods.

    Args:
        place: the namespace, as a part of the metadata; empty for that of `kubectl`.
    """
    pod = pods.specification("wirecost", {**pods.command("hosts"), "resources": {"limits": pods.limits}})
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": pods.name, **place},
            "spec": _job_set_specification(pods, "hosts", pod, {}),
        }
    ]


def train_job(pods: Pods, place: dict[str, str]) -> list[dict[str, Any]]:
    """Returns a TrainJob that starts the pods, and the TrainingRuntime that it names. `place` as for `job_set`."""
    template = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
    runtime = _job_set_specification(pods, TRAINER_JOB, pods.specification(TRAINER_JOB, {}), template)
    return [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"name": pods.name, **place},
            "spec": {"mlPolicy": {"numNodes": pods.allocation.nodes}, "template": {"spec": runtime}},
        },
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": pods.name, **place},
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "TrainingRuntime",
                    "name": pods.name,
                },
                "trainer": {
                    **pods.command(TRAINER_JOB),
                    "numNodes": pods.allocation.nodes,
                    "resourcesPerNode": {"limits": pods.limits},
                },
            },
        },
    ]


KINDS: dict[str, Callable[[Pods, dict[str, str]], list[dict[str, Any]]]] = {
    "jobset": job_set,
    "trainjob": train_job,
}
"""What can start pods, by the name of the option `--manifest`."""
