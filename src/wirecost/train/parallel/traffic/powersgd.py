"""PowerSGD: gradients as low-rank factors, with error feedback (Vogels et al. 2019, arXiv:1905.13727).

A gradient matrix M (rows x columns) is sent as P = M Q and, P made orthonormal, Q = M^T P: one step of subspace
iteration from the last iteration's Q. What P Q^T misses is added to the next iteration's gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wirecost.train.communicator import Communicator
from wirecost.train.parallel.buckets import Bucket
from wirecost.train.parallel.chains import Chain


@dataclass
class Matrices:
    """A bucket's parameters of one shape: where they start, and their factor Q, (matrices, columns, rank)."""

    rows: int
    columns: int
    starts: list[int]
    q: torch.Tensor

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """(matrices, rows, columns) out of the bucket's flat tensor: a copy."""
        return torch.stack(self._parts(flat)).view(-1, self.rows, self.columns)

    def write(self, flat: torch.Tensor, values: torch.Tensor) -> None:
        for part, value in zip(self._parts(flat), values, strict=True):
            part.copy_(value.flatten())

    def write_if(self, condition: torch.Tensor, flat: torch.Tensor, values: torch.Tensor) -> None:
        for part, value in zip(self._parts(flat), values, strict=True):
            part.copy_(torch.where(condition, value.flatten(), part))

    def _parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        size = self.rows * self.columns
        return [flat[start : start + size] for start in self.starts]


@dataclass
class BucketState:
    matrices: list[Matrices]
    plain: list[tuple[int, int]]  # (start, end) of what low rank would not make smaller
    error: torch.Tensor  # of the bucket's size, FP32


class PowerSGD:
    """Two all-reduces for each bucket, in FP32: of every P and of what is sent as it is (vectors), then of
    every Q. Gradients that overflow leave no trace in the error and in Q: that step is skipped."""

    rounds = 2

    def __init__(
        self, communicator: Communicator, rank: int, buckets: Sequence[Bucket], device: torch.device
    ) -> None:
        self.communicator = communicator
        self.rank = rank
        self.states = [self._state(bucket, device) for bucket in buckets]

    def carried(self) -> dict[str, torch.Tensor]:
        """Every bucket's error, which is this rank's own, and Q, which all ranks have."""
        found = {}
        for number, state in enumerate(self.states):
            found[f"{number}.error"] = state.error
            found |= {f"{number}.{m.rows}x{m.columns}.q": m.q for m in state.matrices}
        return found

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        state = self.states[bucket.index]
        wanted = flat.float() + state.error
        originals = [m.of(wanted) for m in state.matrices]
        factors = [original @ m.q for original, m in zip(originals, state.matrices, strict=True)]
        first = torch.cat([*(p.flatten() for p in factors), *(wanted[a:b] for a, b in state.plain)])
        yield self.communicator.all_reduce(first, asynchronous=True)

        sizes = [p.numel() for p in factors] + [b - a for a, b in state.plain]
        parts = first.split(sizes)
        for (start, end), part in zip(state.plain, parts[len(factors) :], strict=True):
            flat[start:end] = part
        if not factors:
            return
        # The sum is finite on all ranks or on none.
        finite = torch.isfinite(first).all()
        factors = [orthonormal(part.view_as(p)) for part, p in zip(parts, factors, strict=False)]
        own = [original.mT @ p for original, p in zip(originals, factors, strict=True)]
        for m, original, p, q in zip(state.matrices, originals, factors, own, strict=True):
            m.write_if(finite, state.error, original - p @ q.mT)
        second = torch.cat([q.flatten() for q in own])
        yield self.communicator.all_reduce(second, asynchronous=True)

        for m, p, part in zip(state.matrices, factors, second.split([q.numel() for q in own]), strict=True):
            q = part.view_as(m.q)
            m.q.copy_(torch.where(finite, q, m.q))
            m.write(flat, p @ q.mT)

    def _state(self, bucket: Bucket, device: torch.device) -> BucketState:
        by_shape: dict[tuple[int, int], list[int]] = defaultdict(list)
        plain = []
        for parameter, start in zip(bucket.parameters, bucket.starts, strict=True):
            rows = parameter.shape[0]
            columns = parameter.numel() // rows
            if (rows + columns) * self.rank < rows * columns:
                by_shape[rows, columns].append(start)
            else:
                plain.append((start, start + parameter.numel()))
        # The same on every rank: the factors are summed.
        draw = torch.Generator().manual_seed(bucket.index)
        matrices = [
            Matrices(
                rows,
                columns,
                starts,
                torch.randn(len(starts), columns, self.rank, generator=draw).to(device),
            )
            for (rows, columns), starts in by_shape.items()
        ]
        return BucketState(matrices, plain, torch.zeros(bucket.size, device=device))


def orthonormal(columns: torch.Tensor) -> torch.Tensor:
    """Gram-Schmidt over the last dimension of (..., rows, rank); a column that depends on those before it comes
    out near zero. (A QR decomposition would make a GPU's host wait.)"""
    done: list[torch.Tensor] = []
    for column in columns.unbind(-1):
        length = column.norm(dim=-1, keepdim=True)
        left = column
        for other in done:
            left = left - (other * left).sum(-1, keepdim=True) * other
        done.append(left / (left.norm(dim=-1, keepdim=True) + 1e-6 * length + 1e-30))
    return torch.stack(done, dim=-1)
