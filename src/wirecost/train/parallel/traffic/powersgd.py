"""PowerSGD: gradients as low-rank factors with error feedback (Vogels et al. 2019, arXiv:1905.13727).

A gradient matrix M (rows x columns) is sent as P = M Q, and then, with P made orthonormal, as Q = M^T P. This
is one step of subspace iteration from the last iteration's Q. The error of P Q^T is added to the next
iteration's gradient.
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
    """The parameters of one shape in a bucket.

    Attributes:
        starts: the first element of each parameter in the bucket.
        q: the factors Q, (matrices, columns, rank).
    """

    rows: int
    columns: int
    starts: list[int]
    q: torch.Tensor

    def read(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns a copy of the matrices in a bucket's flat tensor, (matrices, rows, columns)."""
        return torch.stack(self._parts(flat)).view(-1, self.rows, self.columns)

    def write(self, flat: torch.Tensor, values: torch.Tensor) -> None:
        """Writes matrices, (matrices, rows, columns), to a bucket's flat tensor."""
        for part, value in zip(self._parts(flat), values, strict=True):
            part.copy_(value.flatten())

    def write_if(self, condition: torch.Tensor, flat: torch.Tensor, values: torch.Tensor) -> None:
        """Writes matrices as `write` does, if a boolean scalar on the device is true."""
        for part, value in zip(self._parts(flat), values, strict=True):
            part.copy_(torch.where(condition, value.flatten(), part))

    def _parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        size = self.rows * self.columns
        return [flat[start : start + size] for start in self.starts]


@dataclass
class BucketState:
    """The state of one bucket.

    Attributes:
        plain: (start, end) of each parameter that low rank wouldn't make smaller. They are sent uncompressed.
        error: the error that is added to the next gradient, (bucket.size,), FP32.
    """

    matrices: list[Matrices]
    plain: list[tuple[int, int]]
    error: torch.Tensor


class PowerSGD:
    """An all-reduce of low-rank factors, as two FP32 all-reduces for each bucket.

    The first one sums all P and the uncompressed parameters, and the second one sums all Q. Gradients that
    overflow change neither the error nor Q, because their step is skipped.
    """

    rounds = 2

    def __init__(
        self, communicator: Communicator, rank: int, buckets: Sequence[Bucket], device: torch.device
    ) -> None:
        self.communicator = communicator
        self.rank = rank
        self.states = [self._state(bucket, device) for bucket in buckets]

    def carried(self) -> dict[str, torch.Tensor]:
        """Returns the error of each bucket, which differs between ranks, and its Q, which doesn't."""
        tensors = {}
        for number, state in enumerate(self.states):
            tensors[f"{number}.error"] = state.error
            tensors |= {f"{number}.{m.rows}x{m.columns}.q": m.q for m in state.matrices}
        return tensors

    def all_reduce(self, flat: torch.Tensor, bucket: Bucket) -> Chain:
        state = self.states[bucket.index]
        corrected = flat.float() + state.error
        originals = [m.read(corrected) for m in state.matrices]
        factors = [original @ m.q for original, m in zip(originals, state.matrices, strict=True)]
        first = torch.cat([*(p.flatten() for p in factors), *(corrected[a:b] for a, b in state.plain)])
        yield self.communicator.all_reduce(first, asynchronous=True)

        sizes = [p.numel() for p in factors] + [b - a for a, b in state.plain]
        parts = first.split(sizes)
        for (start, end), part in zip(state.plain, parts[len(factors) :], strict=True):
            flat[start:end] = part
        if not factors:
            return
        # The sum is the same on all ranks, so it is finite on all ranks or on none.
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
        # The initial Q must be the same on every rank, because the factors P are summed.
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
    """Orthonormalises columns, (..., rows, rank), by the Gram-Schmidt process.

    A column that depends linearly on earlier ones becomes almost zero. A QR decomposition isn't used, because
    it makes the host wait for a GPU.
    """
    basis: list[torch.Tensor] = []
    for column in columns.unbind(-1):
        length = column.norm(dim=-1, keepdim=True)
        rest = column
        for vector in basis:
            rest = rest - (vector * rest).sum(-1, keepdim=True) * vector
        basis.append(rest / (rest.norm(dim=-1, keepdim=True) + 1e-6 * length + 1e-30))
    return torch.stack(basis, dim=-1)
