"""The fit of every calibration: properties that the data don't determine keep the value they had.

Each property has a value to begin from and an uncertainty (the standard deviation of its logarithm). The fit is
the most probable value given both and the measurements, and its covariance is that of the linearised problem
(Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, section 4.1). A property counts as determined if the
measurements at least halve its uncertainty, or rule out the value that it had; the others are put back one by
one, the least determined first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wirecost.calibration.properties import Free

DETERMINED = 0.5
"""The share of a property's uncertainty that may remain where it counts as determined."""
UNTOUCHED = 0.9
"""Properties of which more remains are put back together instead of one by one."""
NEEDED = 4.0
"""The rise of chi squared (two standard deviations) that rules out the value that a property had."""
FELT = 0.05
"""A measurement depends on a property if a change by its uncertainty moves it by so many standard deviations."""
Z90 = 1.645
STEP = 1e-3
OUTLIER = 2.0
"""Standard deviations beyond which a measurement counts linearly: a disturbed one should not decide."""

Array = npt.NDArray[np.float64]
Errors = Callable[[Mapping[str, float]], Array]
"""log(predicted / measured) over its noise, for each measurement."""


@dataclass(frozen=True)
class Fitted:
    """A property after the fit. `within` is the factor of its 90 % interval (0.1: 10 % either way), None if the
    data don't determine it. `measurements` is how many of them depend on it, `fewest` how many must."""

    name: str
    value: float
    start: float
    within: float | None
    measurements: int
    fewest: int = 1
    unit: str = ""

    @property
    def reason(self) -> str | None:
        """Why the data don't determine it; None if they do."""
        if self.determined:
            return None
        if self.measurements == 0:
            return "no measurement depends on it"
        if self.measurements < self.fewest:
            return f"fewer than {self.fewest} measurements depend on it"
        return "the measurements that depend on it do not determine it"

    @property
    def determined(self) -> bool:
        """Whether the data determine it."""
        return self.within is not None


@dataclass(frozen=True)
class _Best:
    """The most probable values: `x` in log(value / begin), the share of each uncertainty that remains, the cost,
    and the misfit over the noise squared."""

    x: Array
    remaining: Array
    cost: float
    excess: float


def solve(properties: Sequence[Free], errors: Errors, *, fewest: int = 1, evaluations: int = 60) -> list[Fitted]:
    """Fits the properties, and returns all of them in order: determined, or with the value that they had.

    Args:
        fewest: measurements that must depend on a property; with fewer it is not fitted.
        evaluations: of the errors at most, for each fit of a number of properties (not counting derivatives).
    """
    fixed = {p.name: p.start for p in properties}
    counts = _measurements(properties, errors)
    free = [p for p in properties if counts[p.name] >= fewest]
    needed: set[str] = set()
    together = True
    best = _fit(free, fixed, errors, evaluations)
    while worst := _least_determined(free, best, needed, together=together):
        fewer = [p for p in free if p.name not in worst]
        trial = _fit(fewer, fixed, errors, evaluations)
        if 2 * (trial.cost - best.cost) / best.excess <= NEEDED:
            free, best = fewer, trial
        elif len(worst) > 1:
            together = False  # one of them matters
        else:
            # Its size hardly matters (an overhead of next to nothing), but that it isn't what it was does.
            needed |= worst
    values = fixed | _values(free, best.x)
    shares = zip(free, best.remaining, strict=True)
    within = {p.name: float(np.expm1(Z90 * share * p.uncertainty)) for p, share in shares}
    return [
        Fitted(
            p.name,
            values[p.name],
            p.start,
            within.get(p.name),
            counts[p.name],
            fewest,
            p.unit,
        )
        for p in properties
    ]


def solve_all(free: Sequence[Free], fixed: Mapping[str, float], errors: Errors) -> dict[str, float]:
    """Fits all of `free`, whether or not the data determine them. `fixed` has the values of the other
    properties."""
    return _values(free, _fit(free, fixed, errors, 60).x)


def _measurements(properties: Sequence[Free], errors: Errors) -> dict[str, int]:
    """Returns how many measurements depend on each property, beginning from where a fit begins."""
    begin = {p.name: p.begin for p in properties}
    base = errors(begin)
    counts = {}
    for p in properties:
        moved = errors({**begin, p.name: p.begin * float(np.exp(STEP))})
        counts[p.name] = int(np.sum(np.abs(moved - base) / STEP * p.uncertainty > FELT))
    return counts


def _least_determined(free: Sequence[Free], best: _Best, needed: set[str], *, together: bool) -> set[str]:
    """Returns the names to put back next: all that the data hardly touch (`together`), or the least determined."""
    open_ = [(r, p.name) for p, r in zip(free, best.remaining, strict=True) if p.name not in needed]
    untouched = {name for r, name in open_ if r > UNTOUCHED}
    if together and len(untouched) > 1:
        return untouched
    remaining, name = max(open_, default=(0.0, ""))
    return {name} if remaining > DETERMINED else set()


def _fit(free: Sequence[Free], fixed: Mapping[str, float], errors: Errors, evaluations: int) -> _Best:
    from scipy.optimize import least_squares

    spread = np.array([p.uncertainty for p in free])

    def residuals(x: Array) -> Array:
        return np.concatenate([_robust(errors({**fixed, **_values(free, x)})), x / spread])

    if not free:
        cost = float(np.sum(residuals(np.zeros(0)) ** 2)) / 2
        return _Best(np.zeros(0), np.zeros(0), cost, 1.0)
    low = np.array([max(np.log(p.low / p.begin), -6 * p.uncertainty) for p in free])
    high = np.array([min(np.log(p.high / p.begin), 6 * p.uncertainty) for p in free])
    begin = np.clip(np.zeros(len(free)), low + 1e-6, high - 1e-6)
    result = least_squares(
        residuals, begin, bounds=(low, high), x_scale=spread, max_nfev=evaluations, diff_step=STEP
    )
    count = len(result.fun) - len(free)
    # Where the model misses the measurements by more than their noise, they determine that much less.
    excess = max(1.0, float(np.sum(result.fun[:count] ** 2)) / max(count - len(free), 1))
    data, prior = result.jac[:count], result.jac[count:]
    covariance = np.linalg.inv(data.T @ data / excess + prior.T @ prior)
    remaining = np.sqrt(np.diag(covariance)) / spread
    return _Best(result.x, remaining, float(result.cost), excess)


def _robust(errors: Array) -> Array:
    """Soft L1 beyond `OUTLIER` standard deviations."""
    z = errors / OUTLIER
    return np.sign(z) * OUTLIER * np.sqrt(2 * (np.sqrt(1 + z**2) - 1))


def _values(free: Sequence[Free], x: Array) -> dict[str, float]:
    return {p.name: float(p.begin * np.exp(v)) for p, v in zip(free, x, strict=True)}
