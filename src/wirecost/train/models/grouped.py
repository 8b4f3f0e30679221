"""Products of rows with the matrices of their groups, in one kernel if the device has one, otherwise in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from wirecost.train.models.slots import aligned_slots, move

Linear = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Multiplies rows with the matrices of their groups, (groups, outputs, inputs)."""

ALIGNMENT = 8
"""Number of rows at whose multiples groups start: 16 bytes of 16-bit numbers, which the kernel needs of a group in
the weight's gradient."""


def one_kernel(rows: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Returns whether the device multiplies all groups in one kernel: BF16 on GPUs of compute capability 9.0 or
    above, with rows of whole 16 bytes."""
    if not hasattr(torch, "_grouped_mm") or rows.dtype is not torch.bfloat16 or not rows.is_cuda:
        return False
    aligned = all(size % ALIGNMENT == 0 for weight in weights for size in weight.shape[1:])
    return aligned and torch.cuda.get_device_capability(rows.device) >= (9, 0)


def apply_grouped(
    function: Callable[[torch.Tensor, Linear], torch.Tensor],
    rows: torch.Tensor,
    weights: Sequence[torch.Tensor],
    counts: torch.Tensor,
    equal: int | None,
    *,
    fused: bool | None = None,
) -> torch.Tensor:
    """Applies a function of linears to rows that are ordered by group.

    Args:
        function: called with rows and the linear that multiplies each of them with its group's matrix.
        rows: (rows, inputs).
        weights: the matrices that the function uses, each (groups, outputs, inputs).
        counts: the number of rows of each group, int64 (groups,).
        equal: the number of rows of every group, if it is known on the host.
        fused: whether one kernel is used. None decides it by the device.
    """
    if one_kernel(rows, weights) if fused is None else fused:
        slots, ends = aligned_slots(counts, len(rows), ALIGNMENT)

        def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            # The kernel doesn't write the rows behind the last group.
            return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)  # pyright: ignore[reportPrivateImportUsage]

        return move(function(move(rows, slots), linear), slots.reverse)
    sizes = counts.tolist() if equal is None else [equal] * len(counts)
    # Backward of an index would make a gradient of the whole tensor for each group.
    matrices = {id(weight): weight.unbind() for weight in weights}
    parts = []
    for group, part in enumerate(rows.split(sizes)):

        def linear_of_group(x: torch.Tensor, weight: torch.Tensor, group: int = group) -> torch.Tensor:
            return functional.linear(x, matrices[id(weight)][group])

        parts.append(function(part, linear_of_group))
    return torch.cat(parts)
