"""Prints how far parameters are from those of published models, and which rows of measurements are skipped.

    PYTHONPATH=src:tests python benchmarks/vocabulary.py [REFERENCE]

REFERENCE is a folder of tables of measurements. Without it, only the parameters are checked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from support.published_models import CONFIGURATIONS, COUNTED, PUBLISHED
from wirecost.errors import WirecostError
from wirecost.prediction.validation import Options, validate
from wirecost.spec import load_spec
from wirecost.spec.parameters import count


def parameters() -> None:
    """Prints the largest relative error of the parameters, and how many are exact."""
    expected = {**COUNTED, **PUBLISHED}
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        for name, configuration in CONFIGURATIONS.items():
            path.write_text(json.dumps(configuration))
            errors[name] = abs(count(load_spec("workload", str(path))).total / expected[name] - 1)
    worst = max(errors, key=lambda name: errors[name])
    kinds = {configuration["model_type"] for configuration in CONFIGURATIONS.values()}
    exact = sum(error == 0 for error in errors.values())
    print(
        f"{len(errors)} models of {len(kinds)} types: {exact} exact, largest error {errors[worst]:.2e} ({worst})"
    )


def skipped(folder: Path) -> None:
    """Prints the share of rows that `wirecost validate` skips, with the reasons."""
    rows = 0
    reasons: Counter[str] = Counter()
    for path in sorted(folder.glob("*.csv")):
        try:
            data = validate(path, Options()).as_json()
        except WirecostError as error:
            print(f"{path.name}: {error}")
            continue
        left_out = data["skipped"]
        rows += len(data["rows"]) + len(left_out)
        reasons.update(f"{path.name}: {each['reason'][:90]}" for each in left_out)
    print(f"{rows} rows: {sum(reasons.values())} skipped ({sum(reasons.values()) / max(rows, 1):.2%})")
    for reason, number in reasons.most_common():
        print(f"{number:6} {reason}")


if __name__ == "__main__":
    parameters()
    if len(sys.argv) > 1:
        skipped(Path(sys.argv[1]))
