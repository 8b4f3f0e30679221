"""What a rank reports of why it failed."""

from __future__ import annotations

import json
from pathlib import Path

from wirecost.launch.rank import report_failure

FULL = (
    "CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of which 595.12 MiB is "
    "free. Including non-PyTorch memory, this process has 139.21 GiB memory in use. Of the allocated memory 125.47 GiB "
    "is allocated by PyTorch, and 12.45 GiB is reserved by PyTorch but unallocated. See documentation for Memory"
)


class OutOfMemoryError(RuntimeError):
    """PyTorch's."""


def test_out_of_memory_is_reported_in_short_and_its_traceback_whole(tmp_path: Path) -> None:
    report_failure(tmp_path, 1, OutOfMemoryError(FULL))
    failure = json.loads((tmp_path / "failures" / "rank-1.json").read_bytes())
    assert failure["kind"] == "out_of_memory"
    assert failure["reason"] == (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 12.27 GiB. GPU 0 has a total capacity of 139.80 GiB of "
        "which 595.12 MiB is free."
    )
    assert "See documentation" in failure["traceback"]
    assert failure["memory"]["asked_bytes"] == round(12.27 * 2**30)
