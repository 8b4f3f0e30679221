"""Where reference data lies that some tests read: beside the checkout, or where WIRECOST_SHARED says."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("WIRECOST_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
