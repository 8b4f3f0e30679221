"""The process of one variant: `python -m wirecost.train.hosttimes.rank`.

It reads JSON lines from stdin and answers each with one on stdout. The first line has the variant and the request,
and each further line is a turn: the number of iterations to time. The process ends when stdin does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from wirecost.errors import WirecostError
from wirecost.launch.processes import die_with_parent
from wirecost.spec import Device, Precision, Workload
from wirecost.train.hosttimes.variants import Cost, HostRequest


def main() -> None:
    """Serves the variant that the first line of stdin names. An error is the last answer."""
    # Libraries print to stdout: the answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(data: dict[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")

    first = json.loads(sys.stdin.readline())
    die_with_parent(first["parent"])
    cost = None if first["cost"] is None else Cost(first["cost"])
    settings = first["request"]
    kinds = {"workload": Workload.model_validate, "precision": Precision, "device": Device}
    request = HostRequest(**settings | {key: kind(settings[key]) for key, kind in kinds.items()})
    try:
        # The import takes seconds, in which the process would outlive its parent.
        from wirecost.train.hosttimes.timed import serve

        serve(request, cost, answer, sys.stdin)
    except Exception as error:
        kind = "" if isinstance(error, WirecostError) else f"{type(error).__name__}: "
        answer({"failed": kind + str(error).strip().partition("\n")[0]})
        raise SystemExit(1) from error
    answers.flush()
    os._exit(0)  # a group that moves nothing has nothing to take down


if __name__ == "__main__":
    main()
