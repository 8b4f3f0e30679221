"""Tables of operations of a pipelined, data-parallel job: one row for each operation of each rank and step.

Such tables were published with the OSDI 2025 study of stragglers (arXiv:2505.05713). Columns: dp_rank, stage,
rank, step, optype, start_ts and duration in seconds, seq_id (number of the operation among its kind in the
step), mc (model chunk of the rank), gmc (model chunk over all stages).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wirecost.errors import WirecostError

COLUMNS = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id", "mc", "gmc")
POINT_TO_POINT = ("forward-send", "forward-recv", "backward-send", "backward-recv")
COMPUTE = ("forward-compute", "backward-compute")
MOST_ROWS = 50_000_000

Name = tuple[str, int, int]
"""Kind, number in its step, and stage of an operation."""
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Operations:
    """The operations of a table: rows are operations, columns every (step, data-parallel rank) in this order.

    Times are in seconds from the start of their step. `mc` and `gmc` hold one value for each operation.
    """

    names: list[Name]
    steps: list[int]
    dp: int
    stages: int
    start: npt.NDArray[np.float32]
    end: npt.NDArray[np.float32]
    duration: npt.NDArray[np.float32]
    mc: list[int]
    gmc: list[int]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.steps), self.dp


def is_table(path: Path) -> bool:
    """Returns whether a path is a Parquet table of operations."""
    return path.suffix.lower() == ".parquet"


def read_operations(path: Path) -> Operations:
    """Returns the operations of a Parquet table.

    Raises:
        WirecostError: if the file can't be read, lacks a column, or lacks operations of some ranks or steps.
    """
    import polars as pl
    from polars.exceptions import PolarsError

    try:
        columns = pl.read_parquet_schema(path)
        missing = [c for c in COLUMNS if c not in columns]
        if missing:
            raise WirecostError(
                f"{path}: a table of operations needs the columns {', '.join(COLUMNS)}; "
                f"missing: {', '.join(missing)}"
            )
        table = pl.read_parquet(path, columns=list(COLUMNS), n_rows=MOST_ROWS + 1)
    except (OSError, PolarsError) as error:
        raise WirecostError(f"{path}: can't be read as Parquet: {str(error).splitlines()[0]}") from error
    if table.height == 0:
        raise WirecostError(f"{path}: the table holds no operation")
    if table.height > MOST_ROWS:
        raise WirecostError(f"{path}: more than {MOST_ROWS:,} operations; select some steps")
    table = table.with_columns(pl.col("optype").cast(pl.String))
    return _operations(path, table)


def _operations(path: Path, table) -> Operations:
    import polars as pl

    steps = table["step"].unique().sort().to_list()
    dp = int(table["dp_rank"].max()) + 1
    stages = int(table["stage"].max()) + 1
    first = table.filter((pl.col("step") == steps[0]) & (pl.col("dp_rank") == 0))
    keys = first.select("optype", "seq_id", "stage", "mc", "gmc").rows()
    names = [(str(kind), int(seq), int(stage)) for kind, seq, stage, _, _ in keys]
    number = {name: i for i, name in enumerate(names)}
    if len(number) != len(names):
        raise WirecostError(f"{path}: an operation is there twice in step {steps[0]} of data-parallel rank 0")
    rows = np.array(
        [number.get((k, s, g), -1) for k, s, g in table.select("optype", "seq_id", "stage").iter_rows()],
        dtype=np.int64,
    )
    step_of = np.searchsorted(np.array(steps), table["step"].to_numpy())
    at = step_of * dp + table["dp_rank"].to_numpy().astype(np.int64)
    count = len(names) * len(steps) * dp
    if (rows < 0).any() or len(rows) != count or len(np.unique(rows * (len(steps) * dp) + at)) != count:
        raise WirecostError(
            f"{path}: {table.height} operations, but {len(names)} of a rank in {len(steps)} steps of {dp} "
            f"data-parallel ranks make {count}: steps or ranks differ, keep those that are whole"
        )
    start = np.empty((len(names), len(steps) * dp), dtype=np.float32)
    duration = np.empty_like(start)
    start[rows, at] = table["start_ts"].to_numpy().astype(np.float32)
    duration[rows, at] = table["duration"].to_numpy().astype(np.float32)
    end = start + duration
    begins = start.reshape(len(names), len(steps), dp).min(axis=(0, 2))
    offset = np.repeat(begins, dp)
    return Operations(
        names, [int(s) for s in steps], dp, stages, start - offset, end - offset, duration,
        [int(k[3]) for k in keys], [int(k[4]) for k in keys],
    )  # fmt: skip
