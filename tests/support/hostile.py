"""A job in which whatever can carry a name carries a hostile one."""

from __future__ import annotations

import json
from pathlib import Path

from support.tracefiles import make_job

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u001b[31m\u202ered[bold]\u0007&amp;"


def write_hostile_job(folder: Path) -> None:
    """Writes a job of two ranks in which every field that can hold a name holds a hostile one."""
    for made in make_job(2, 2, seed=41):
        document = json.loads(made.text)
        for event in document["traceEvents"]:
            if event.get("cat") == "kernel" and "nccl" not in event["name"]:
                event["name"] = HOSTILE
            if "nccl" in event["name"]:
                event["args"]["Process Group Name"] = HOSTILE
                event["args"]["Process Group Description"] = HOSTILE + "2"
        document["traceEvents"].append(
            {"ph": "X", "cat": "gpu_user_annotation", "name": HOSTILE, "pid": 0, "tid": 7, "ts": 1e6, "dur": 60.0}
        )
        document["traceEvents"].append({"ph": "X", "cat": HOSTILE, "name": HOSTILE, "ts": 1, "dur": 1})
        (folder / f"rank{made.rank}.json").write_text(json.dumps(document))
