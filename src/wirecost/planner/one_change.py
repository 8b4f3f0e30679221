"""Plans that differ from a given one in one choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from wirecost.planner.choices import RECOMPUTES, Choice
from wirecost.planner.schedules import SCHEDULES
from wirecost.planner.search import Found
from wirecost.spec.plan import PipelineSchedule


def differing(found: Found, base: Choice) -> npt.NDArray[np.int64]:
    """Returns in how many choices each plan differs from `base`, of shape (plans,). Data parallelism and
    accumulation follow from the others, and choices that only one of the plans can make don't count: without
    tensor parallelism there is no sequence parallelism."""
    tp, pp, cp, dp = (found.column(name) for name in ("tp", "pp", "cp", "dp"))
    both_tensor = (tp > 1) & (base.tp > 1)
    both_pipeline = (pp > 1) & (base.pp > 1)
    both_data = (dp * cp > 1) & (base.dp * base.cp > 1)
    zero, node = found.column("zero"), found.column("sharding_group")
    sharding = (zero != base.zero) | (node != float(base.node_sharding))
    count = (tp != base.tp).astype(np.int64)
    for name in ("pp", "cp", "ep", "mb"):
        count += found.column(name) != getattr(base, name)
    count += (found.column("recompute") != RECOMPUTES[base.recompute]).astype(np.int64)
    count += both_tensor & (found.column("sp") != float(base.sp))
    count += both_pipeline & (found.column("vpp") != base.vpp)
    count += both_pipeline & (found.column("placement") != base.pp_first + 2.0 * base.dp_last)
    # Interleaving is a change of the chunks already.
    schedule = found.column("schedule")
    schedule = np.where(schedule == SCHEDULES[PipelineSchedule.INTERLEAVED], 0.0, schedule)
    count += both_pipeline & (schedule != (SCHEDULES[base.schedule] if base.schedule else 0.0))
    count += both_data & sharding
    count += both_data & (found.column("overlap") != float(base.overlap))
    return count


def with_one_change(found: Found, base: Choice) -> Found:
    """Returns the plans that differ from `base` in at most one choice."""
    return selected(found, differing(found, base) <= 1)


def selected(found: Found, mask: npt.NDArray[np.bool_]) -> Found:
    """Returns the plans of a mask of shape (plans,), from the fastest on."""
    return replace(
        found,
        row=found.row[mask],
        mode=found.mode[mask],
        total_s=found.total_s[mask],
        memory_bytes=found.memory_bytes[mask],
        comm_fraction=found.comm_fraction[mask],
    )
