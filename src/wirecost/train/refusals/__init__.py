"""What the engine can't train, said before anything is started; none of it needs PyTorch."""

from wirecost.train.refusals.plans import misfit, mismatch, unsupported
from wirecost.train.refusals.workloads import untrainable

__all__ = ["misfit", "mismatch", "unsupported", "untrainable"]
