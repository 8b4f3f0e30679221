"""Which damaged inputs a run of the tests takes: others in every run, and any run's again."""

from __future__ import annotations

import os
import time

SEED = int(os.environ.get("WIRECOST_FUZZ_SEED") or time.strftime("%Y%m%d%H", time.gmtime()))
"""The date and hour, unless the environment says another: a hundred runs see 10,000 inputs of each kind."""
COUNT = int(os.environ.get("WIRECOST_FUZZ_COUNT", "100"))
FIRST = SEED * 100_000
"""The number of the first input."""
