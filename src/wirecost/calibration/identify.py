"""A fit that knows what it can't know: properties that the measurements don't tell stay where they were.

Each property has a value to start from and how far off that may be (the standard deviation of its logarithm). The
fit is the most probable value given both, and its covariance is that of the linearised problem (Gelman et al.,
"Bayesian Data Analysis", 3rd ed. 2013, section 4.1). A property counts as told where the measurements at least
halve what was uncertain about it, or rule its start out; those that aren't are put back one by one, the least told
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TOLD = 0.5
"""The share of a property's first uncertainty that may be left where it counts as told."""
NEEDED = 4.0
"""The rise of chi squared (two standard deviations) that says a property can't be where it started."""
Z90 = 1.645
STEP = 1e-3
OUTLIER = 2.0

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Property:
    """`start`, `low` and `high` in the property's unit; `doubt` is log(value / start)'s standard deviation."""

    name: str
    start: float
    doubt: float
    low: float = 1e-30
    high: float = 1e30


@dataclass(frozen=True)
class Told:
    """A property after the fit; `within` is the 90 % factor (0.1: 10 % either way), None where it isn't told."""

    name: str
    value: float
    start: float
    within: float | None

    @property
    def told(self) -> bool:
        return self.within is not None


def identify(properties: Sequence[Property], errors: Callable[[Mapping[str, float]], Array]) -> list[Told]:
    """Fits `properties` to `errors`: log(predicted / measured) over its noise for each measurement. Needs scipy.

    Every property comes back, in order, told or at its start.
    """
    free = list(properties)
    values = {p.name: p.start for p in properties}
    within: dict[str, float] = {}
    needed: set[str] = set()
    best = _fit(free, properties, errors)
    while free:
        order = sorted(range(len(free)), key=lambda i: -best.left[i])
        worst = next((i for i in order if free[i].name not in needed), None)
        if worst is None or best.left[worst] <= TOLD:
            break
        fewer = [p for i, p in enumerate(free) if i != worst]
        trial = _fit(fewer, properties, errors)
        if 2 * (trial.cost - best.cost) / best.excess > NEEDED:
            # Its size hardly matters (an overhead of next to nothing), but that it isn't the start's does.
            needed.add(free[worst].name)
            continue
        free, best = fewer, trial
    values.update(_values(free, best.x))
    for one, share in zip(free, best.left, strict=True):
        within[one.name] = float(np.expm1(Z90 * share * one.doubt))
    return [Told(p.name, values[p.name], p.start, within.get(p.name)) for p in properties]


def fit_once(free: Sequence[Property], errors: Callable[[Mapping[str, float]], Array]) -> dict[str, float]:
    """Fits `free`, whatever is told of them. Needs scipy."""
    return _values(free, _fit(free, free, errors).x)


@dataclass(frozen=True)
class _Best:
    """`left` is the share of each property's doubt that is left, `excess` the misfit over the noise, squared."""

    x: Array
    left: Array
    cost: float
    excess: float


def _fit(
    free: Sequence[Property], properties: Sequence[Property], errors: Callable[[Mapping[str, float]], Array]
) -> _Best:
    from scipy.optimize import least_squares

    doubts = np.array([p.doubt for p in free])
    fixed = {p.name: p.start for p in properties}

    def residuals(x: Array) -> Array:
        return np.concatenate([_robust(errors({**fixed, **_values(free, x)})), x / doubts])

    if not free:
        return _Best(np.zeros(0), np.zeros(0), float(np.sum(residuals(np.zeros(0)) ** 2)) / 2, 1.0)
    low = np.array([max(np.log(p.low / p.start), -6 * p.doubt) for p in free])
    high = np.array([min(np.log(p.high / p.start), 6 * p.doubt) for p in free])
    begin = np.clip(np.zeros(len(free)), low + 1e-6, high - 1e-6)
    found = least_squares(residuals, begin, bounds=(low, high), x_scale=doubts, max_nfev=60, diff_step=STEP)
    count = len(found.fun) - len(free)
    # Where the model misses the measurements by more than their noise, they tell that much less.
    excess = max(1.0, float(np.sum(found.fun[:count] ** 2)) / max(count - len(free), 1))
    seen, first = found.jac[:count], found.jac[count:]
    covariance = np.linalg.inv(seen.T @ seen / excess + first.T @ first)
    return _Best(found.x, np.sqrt(np.diag(covariance)) / doubts, float(found.cost), excess)


def _robust(errors: Array) -> Array:
    """Soft L1 beyond `OUTLIER` standard deviations: a run that was disturbed should not decide."""
    z = errors / OUTLIER
    return np.sign(z) * OUTLIER * np.sqrt(2 * (np.sqrt(1 + z**2) - 1))


def _values(free: Sequence[Property], x: Array) -> dict[str, float]:
    return {p.name: float(p.start * np.exp(v)) for p, v in zip(free, x, strict=True)}
