"""torchtitan's Llama with FSDP2: `python -m wirecost.peers.torchtitan --workload NAME --micro-batch N`.

torchtitan's own training loop runs unchanged. It gets the dimensions of the workload, and random tokens instead of
a data set and a tokenizer.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from wirecost.errors import WirecostError
from wirecost.peers.llama import llama_workload
from wirecost.spec.workload import Workload

NAME = "wirecost-llama"
"""The name under which torchtitan knows the model and its only size."""
SERIES = "0.2."
"""Versions of torchtitan whose configuration this module writes."""
MOST_STEPS = 100_000
"""Number of steps after which torchtitan ends, unless `wirecost run` ends it before."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", required=True, help="name of a preset of family llama")
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences of a rank in an iteration")
    parser.add_argument("--iterations", type=int, default=MOST_STEPS, help="number of iterations")
    options = parser.parse_args()
    try:
        workload = llama_workload(options.workload)
        _check_installed()
    except WirecostError as error:
        print(f"wirecost: {error}", file=sys.stderr, flush=True)
        return 2
    train(workload, options.micro_batch, options.iterations)
    return 0


def _check_installed() -> None:
    """Raises WirecostError unless torchtitan and a GPU are there."""
    try:
        installed = version("torchtitan")
    except PackageNotFoundError as error:
        raise WirecostError(f"torchtitan is missing: pip install 'torchtitan=={SERIES}*'") from error
    if not installed.startswith(SERIES):
        raise WirecostError(f"torchtitan {installed} has another configuration; install torchtitan=={SERIES}*")
    import torch

    if not torch.cuda.is_available():
        raise WirecostError("torchtitan needs a GPU for each rank; it does not train on CPUs")


def train(workload: Workload, micro_batch: int, steps: int) -> None:
    """Runs torchtitan's training in this rank, whose place is in torchrun's environment variables."""
    from torchtitan.config import ConfigManager
    from torchtitan.protocols.train_spec import register_train_spec
    from torchtitan.tools.logging import init_logger
    from torchtitan.train import Trainer

    init_logger()  # prints each iteration's speed, as torchtitan's own command does
    register_train_spec(NAME, _train_spec(workload))
    with tempfile.TemporaryDirectory(prefix="wirecost-torchtitan-") as folder:
        arguments = {
            "--job.dump_folder": folder,
            "--model.name": NAME,
            "--model.flavor": NAME,
            "--training.local_batch_size": micro_batch,
            "--training.seq_len": workload.sequence_length,
            "--training.steps": steps,
            "--metrics.log_freq": 1,
            "--activation_checkpoint.mode": "none",
        }
        config = ConfigManager().parse_args([text for pair in arguments.items() for text in map(str, pair)])
        trainer = Trainer(config)
        trainer.train()
        trainer.close()


def _train_spec(workload: Workload) -> Any:
    from dataclasses import replace

    from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec

    size = TransformerModelArgs(
        dim=workload.hidden,
        n_layers=workload.layers,
        n_heads=workload.heads,
        n_kv_heads=workload.key_value_heads,
        vocab_size=workload.vocab_size,
        # The width of the MLP is 8/3 x dim x ffn_dim_multiplier, rounded up to a multiple of multiple_of.
        multiple_of=workload.ffn,
        ffn_dim_multiplier=min(1.0, workload.ffn / (8 / 3 * workload.hidden)) / 2,
        max_seq_len=workload.sequence_length,
    )

    def tokens(*_: Any, job_config: Any, dp_rank: int, **__: Any) -> RandomTokens:
        training = job_config.training
        return RandomTokens(workload.vocab_size, training.local_batch_size, training.seq_len, seed=dp_rank)

    return replace(
        get_train_spec(),
        model_args={NAME: size},
        build_dataloader_fn=tokens,
        build_tokenizer_fn=None,
        build_validator_fn=None,
        state_dict_adapter=None,
    )


class RandomTokens:
    """One batch of random tokens without end, as torchtitan's data loaders yield it."""

    def __init__(self, vocab_size: int, batch: int, length: int, seed: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed)
        self._tokens = torch.randint(0, vocab_size, (batch, length + 1), generator=generator)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        while True:
            yield {"input": self._tokens[:, :-1].clone()}, self._tokens[:, 1:].clone()

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing, because there is no place to go on from."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Accepts what `state_dict` returns."""


if __name__ == "__main__":
    sys.exit(main())
