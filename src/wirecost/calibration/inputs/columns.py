"""Numbers in tables of measurements: what each column can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping

from wirecost.errors import WirecostError


class CannotExpressError(WirecostError):
    """A row that the model can't express; the message is the reason."""


# Lowest and highest value of each column of counts: far beyond what was ever built, and small enough that products
# of a row's values stay finite.
COUNTS: dict[str, tuple[int, int]] = {
    "n_layers": (1, 10**4),
    "hidden": (1, 10**6),
    "heads": (1, 10**5),
    "kv_heads": (1, 10**5),
    "ffn": (1, 10**7),
    "vocab": (1, 10**8),
    "seq": (1, 10**9),
    "gpus_per_node": (1, 1024),
    "n_gpus": (1, 10**7),
    "gpus": (1, 10**7),
    "nodes": (1, 10**7),
    "tp": (1, 10**5),
    "pp": (1, 10**5),
    "vpp": (1, 10**5),
    "cp": (1, 10**5),
    "ep": (1, 10**5),
    "dp": (1, 10**7),
    "experts": (1, 10**5),
    "topk": (1, 10**5),
    "moe_ffn": (1, 10**7),
    "shared_experts": (1, 10**4),
    "moe_layers": (1, 10**4),
    "mbs": (1, 10**6),
    "gas": (1, 10**6),
    "gbs": (1, 10**9),
    "micro_batch": (1, 10**6),
    "global_batch": (1, 10**9),
    "size_bytes": (1, 2**60),
}
# The same of columns of quantities.
QUANTITIES: dict[str, tuple[float, float]] = {
    "params_b": (1e-6, 1e6),
    "intra_gbytes_s_per_gpu_uni": (1e-3, 1e5),
    "inter_gbit_s_per_node": (1e-3, 1e6),
    "iter_s": (1e-6, 1e7),
    "time_us": (1e-3, 1e12),
    "comm_fraction": (0.0, 1.0),
}


def number(row: Mapping[str, str | None], key: str) -> float | None:
    """Returns a column's number; None where it is empty.

    Raises:
        CannotExpressError: for text, and for a number outside the column's domain.
    """
    text = (row.get(key) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise CannotExpressError(f"{key} is not a number: {text[:40]!r}") from error
    if key in COUNTS:
        low, high = COUNTS[key]
        if not (low <= value <= high and value == math.floor(value)):
            raise CannotExpressError(
                f"{key} is {text[:40]}, which can't be: expected a whole number from {low} to {high}"
            )
    else:
        lowest, highest = QUANTITIES[key]
        if not lowest <= value <= highest:
            raise CannotExpressError(
                f"{key} is {text[:40]}, which can't be: expected a number from {lowest:g} to {highest:g}"
            )
    return value


def whole(row: Mapping[str, str | None], key: str, default: int) -> int:
    """Returns a column's count, or `default` where it is empty. Raises CannotExpressError, see `number`."""
    value = number(row, key)
    return default if value is None else int(value)
