"""Writes manifests that run a study on Kubernetes. They are written, not applied.

OUT/kubernetes/SHAPE.yaml    a Secret, a ConfigMap with the study, and what starts one pod for each host

`kubernetes_objects` describes the objects.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wirecost.errors import SpecError, one_of
from wirecost.spec import Device, Study, to_yaml
from wirecost.storage import write_file
from wirecost.study.allocation import Allocation
from wirecost.study.kubernetes_objects import KINDS, Pods
from wirecost.study.pod import STUDY
from wirecost.study.runnable import check_installed
from wirecost.study.store import Store

FOLDER = "kubernetes"


@dataclass(frozen=True)
class KubernetesOptions:
    """Options of the manifests.

    Attributes:
        image: image of the pods, with wirecost and `python3`.
        claim: name of the PersistentVolumeClaim for the results. All pods of a job mount it.
        namespace: namespace. None leaves that of `kubectl`.
        cpus: processor cores of a pod, as Kubernetes writes them. None asks for none.
        memory: memory of a pod, as Kubernetes writes it. None asks for none.
        kind: what starts the pods: `jobset`, or `trainjob` of Kubeflow Trainer.
    """

    image: str
    claim: str
    namespace: str | None = None
    cpus: str | None = None
    memory: str | None = None
    kind: str = "jobset"


@dataclass(frozen=True)
class WrittenManifest:
    """A manifest that was written, with the number of experiments that it runs."""

    path: Path
    shape: str
    experiments: int


def write_manifests(study: Study, out: Path, options: KubernetesOptions) -> list[WrittenManifest]:
    """Writes a manifest for each shape of a study's experiments, and returns them.

    Raises:
        SpecError, MissingExtraError: if the study can't be trained, or an option is none that Kubernetes takes.
        StoreError, OSError: if a file can't be written.
    """
    check_installed(study)
    store = Store(out)
    store.check_study_file(study)
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    experiments = store.planned(study)
    written = []
    for allocation in sorted({Allocation.of(experiment) for experiment in experiments}):
        path = folder / f"{allocation.name}.yaml"
        documents = manifest(study, allocation, options)
        write_file(path, yaml.safe_dump_all(documents, sort_keys=False, width=100))
        path.chmod(0o600)  # it holds the token
        written.append(WrittenManifest(path, allocation.name, len(allocation.fitting(experiments))))
    return written


def manifest(study: Study, allocation: Allocation, options: KubernetesOptions) -> list[dict[str, Any]]:
    """Returns the objects that run the experiments of one shape.

    Raises:
        SpecError: if an option is none that Kubernetes takes.
    """
    _check(options)
    limits = {"cpu": options.cpus, "memory": options.memory}
    if study.device is Device.CUDA:
        limits["nvidia.com/gpu"] = str(allocation.tasks_per_node)
    pods = Pods(
        study.name,
        allocation,
        options.image,
        options.claim,
        {key: value for key, value in limits.items() if value is not None},
    )
    place = {"namespace": options.namespace} if options.namespace else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": pods.name, **place},
            "stringData": {"token": secrets.token_hex(32)},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": pods.name, **place},
            "data": {STUDY.name: to_yaml(study)},
        },
        *KINDS[options.kind](pods, place),
    ]


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")


def _check(options: KubernetesOptions) -> None:
    """Raises SpecError for an option that Kubernetes doesn't take."""
    if options.kind not in KINDS:
        raise SpecError(f"--manifest: {one_of('kind of manifest', options.kind, tuple(KINDS))}")
    for option, value, pattern, example in (
        ("--volume-claim", options.claim, _NAME, "results"),
        ("--namespace", options.namespace, _NAME, "training"),
        ("--pod-cpus", options.cpus, _QUANTITY, "16"),
        ("--pod-memory", options.memory, _QUANTITY, "64Gi"),
    ):
        if value is not None and not pattern.fullmatch(value):
            raise SpecError(f"{option}: '{value[:80]}' isn't taken by Kubernetes; write it like '{example}'")
    if not re.fullmatch(r"[^\s\"'\\]{1,500}", options.image) or not options.image.isprintable():
        raise SpecError(
            "--container-image: is no name of an image; write it like 'registry.example.com/wirecost:1'"
        )
