"""One rank of a model that Megatron-Core trains: `python -m wirecost.megatron SETTINGS`, with SETTINGS as JSON."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec


def main() -> int:
    """Trains until the run has been measured, or for a number of iterations if nobody measures it."""
    parser = argparse.ArgumentParser(prog="python -m wirecost.megatron", description=__doc__)
    parser.add_argument(
        "settings", metavar="SETTINGS", help='JSON: {"workload": ..., "plan": ..., "micro_batch": N}'
    )
    parser.add_argument("--iterations", type=int, help="default: 30, or without end when measured")
    options = parser.parse_args()
    from wirecost.errors import SpecError
    from wirecost.spec.megatron import settings_from

    try:
        settings = settings_from(options.settings)
    except SpecError as error:
        return _refuse(str(error))
    if find_spec("megatron") is None or find_spec("megatron.core") is None:
        return _refuse("Megatron-Core is missing: pip install 'wirecost[megatron]'")
    import torch

    if not torch.cuda.is_available():
        return _refuse("Megatron-Core needs a GPU for each rank; it does not train on CPUs")
    from wirecost.megatron.training import train

    train(settings, options.iterations or (None if os.environ.get("WIRECOST_JOB") else 30))
    return 0


def _refuse(reason: str) -> int:
    print(f"wirecost: {reason}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
