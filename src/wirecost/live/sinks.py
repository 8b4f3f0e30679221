"""Writes the scalars of a watched job to TensorBoard, Weights & Biases, MLflow, Prometheus."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from wirecost.errors import MissingExtraError, WirecostError

Sink = Callable[[dict[str, float], int], None]
"""Takes scalars by name, and the number of the iteration."""


def to_tensorboard(writer: Any) -> Sink:
    """Returns a sink that writes to a `torch.utils.tensorboard.SummaryWriter`."""

    def write(scalars: dict[str, float], iteration: int) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, iteration)

    return write


def to_active_runs() -> Sink:
    """Returns a sink that logs to the runs of Weights & Biases and MLflow that the job itself has started."""

    def write(scalars: dict[str, float], iteration: int) -> None:
        wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
        if wandb is not None and getattr(wandb, "run", None) is not None:
            # The job counts its own steps, which must not go back.
            wandb.log({**scalars, "wirecost/iteration": iteration})
        if mlflow is not None and mlflow.active_run() is not None:
            mlflow.log_metrics(scalars, step=iteration)

    return write


def to_prometheus(port: int) -> Sink:
    """Returns a sink that serves the latest scalars at a port of the loopback interface.

    Raises:
        MissingExtraError: if prometheus_client isn't installed.
        WirecostError: if the port is in use.
    """
    try:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server
    except ImportError as error:
        raise MissingExtraError("serving to Prometheus", "monitor") from error
    registry = CollectorRegistry()
    gauges: dict[str, Any] = {}
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise WirecostError(f"port {port} can't be used: {error.strerror}; choose another one") from error

    def write(scalars: dict[str, float], iteration: int) -> None:
        for name, value in {**scalars, "wirecost/iteration": float(iteration)}.items():
            metric = re.sub(r"[^a-zA-Z0-9_]", "_", name)
            if metric not in gauges:
                gauges[metric] = Gauge(metric, f"{name} of the job's last window", registry=registry)
            gauges[metric].set(value)

    return write
