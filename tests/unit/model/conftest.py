"""Makes model_support importable: pytest's importlib mode leaves the tests' folder off the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
