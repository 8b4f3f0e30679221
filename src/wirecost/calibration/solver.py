"""The solver of every calibration: the most probable values of properties.

Each property has a start value and an uncertainty (the standard deviation of its logarithm); some share a factor
of unknown size as well. The fit is the most probable value given both and the measurements (maximum a
posteriori), and its covariance is that of the linearised problem (Gelman et al., "Bayesian Data Analysis", 3rd ed.
2013, section 4.1). A property counts as determined if the measurements at least halve its uncertainty, or rule
out its previous value. A property on which no measurement depends keeps its previous value. The other properties,
which the measurements determine only together, are fitted in one of two ways:

- All of them keep their most probable values. Few measurements are then explained by all properties on which they
  depend, each by its share: a property moves further the less certain it was.
- They are reset to their previous values one by one, the least determined first, while the fit gets no worse than
  the noise explains. Many measurements are then explained by few properties.

The measurements count as noisier than stated if the fit of all properties leaves more unexplained. How much is
estimated with the number of measurements less the effective number of fitted properties (the trace of the hat
matrix: Hastie et al., "The Elements of Statistical Learning", 2nd ed. 2009, section 7.6). Of few measurements
nothing remains, so the stated noise counts as `PRIOR_MEASUREMENTS` measurements of its own (a scaled inverse chi
squared prior: Gelman et al., section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wirecost.calibration.properties import Common, Free

DETERMINED = 0.5
"""Largest remaining share of the uncertainty of a determined property."""
UNTOUCHED = 0.9
"""Properties with a larger remaining share are reset together instead of one by one."""
NEEDED = 4.0
"""The rise of chi squared (two standard deviations) that rules out a property's previous value."""
PRIOR_MEASUREMENTS = 4.0
"""Number of measurements as which the stated noise counts when the noise is estimated."""
FELT = 0.05
"""A measurement depends on a property if a change by its uncertainty moves it by this number of standard
deviations.
"""
Z90 = 1.645
STEP = 1e-3
OUTLIER = 2.0
"""Standard deviations beyond which a measurement counts linearly, so that a disturbed one doesn't dominate."""

Array = npt.NDArray[np.float64]
Errors = Callable[[Mapping[str, float]], Array]
"""log(predicted / measured) over its noise, for each measurement."""


@dataclass(frozen=True)
class Fitted:
    """A property after the fit. `within` is the factor of its 90 % interval (0.1: 10 % either way), None if it has
    its previous value. `determined` is whether the measurements determine it by themselves, and not only together
    with other properties. `measurements` is the number that depend on it, `fewest` the required number.
    """

    name: str
    value: float
    start: float
    within: float | None
    measurements: int
    fewest: int = 1
    unit: str = ""
    determined: bool = False

    @property
    def fitted(self) -> bool:
        """Returns whether the value is that of the fit."""
        return self.within is not None

    @property
    def reason(self) -> str | None:
        """Returns the reason why the data don't determine the property; None if they do."""
        if self.determined:
            return None
        if self.measurements == 0:
            return "no measurement depends on it"
        if self.measurements < self.fewest:
            return f"fewer than {self.fewest} measurements depend on it"
        if not self.fitted:
            return "the measurements that depend on it do not determine it"
        return "the measurements determine it only together with others"


@dataclass(frozen=True)
class _Best:
    """The most probable values: `x` in log(value / begin) with its standard deviations, the share of each
    uncertainty that remains, the cost,
    and the estimated over the stated variance of the noise (at least 1)."""

    x: Array
    deviation: Array
    remaining: Array
    cost: float
    excess: float


def solve(
    properties: Sequence[Free],
    errors: Errors,
    *,
    fewest: int = 1,
    reset: bool = True,
    common: Sequence[Common] = (),
    evaluations: int = 60,
) -> list[Fitted]:
    """Fits the properties, and returns all of them in order.

    Args:
        fewest: measurements that must depend on a property; with fewer it is not fitted.
        reset: whether properties that the measurements don't determine get their previous values. Otherwise only
            those do that were switched off and that the measurements don't need.
        common: factors that the properties share.
        evaluations: of the errors at most, for each fit of a number of properties (not counting derivatives).
    """
    fixed = {p.name: p.start for p in properties}
    counts = _measurements(properties, errors)
    free = [p for p in properties if counts[p.name] >= fewest]
    best = first = _fit(free, fixed, errors, common, evaluations)
    needed = set() if reset else {p.name for p in free if p.begin == p.start}
    together = reset
    while worst := _least_determined(free, best, needed, together=together):
        fewer = [p for p in free if p.name not in worst]
        trial = _fit(fewer, fixed, errors, common, evaluations)
        if 2 * (trial.cost - best.cost) / first.excess <= NEEDED:
            free, best = fewer, trial
        elif len(worst) > 1:
            together = False  # one of them matters
        else:
            # Its size hardly matters (a negligible overhead), but the change from its previous value does.
            needed |= worst
    found = zip(free, best.x.tolist(), best.deviation.tolist(), best.remaining.tolist(), strict=True)
    fits = {p.name: (x, deviation, remaining) for p, x, deviation, remaining in found}
    return [_fitted(p, fits.get(p.name), counts[p.name], fewest, kept=reset) for p in properties]


def _fitted(p: Free, of_fit: tuple[float, float, float] | None, count: int, fewest: int, *, kept: bool) -> Fitted:
    """Returns a property after the fit. `kept`: what remained after a reset is determined."""
    if of_fit is None:
        return Fitted(p.name, p.start, p.start, None, count, fewest, p.unit)
    x, deviation, remaining = of_fit
    # A property that was switched off remains only if the measurements need it.
    determined = kept or p.begin != p.start or remaining <= DETERMINED or x**2 > NEEDED * deviation**2
    value, within = float(p.begin * np.exp(x)), float(np.expm1(Z90 * deviation))
    return Fitted(p.name, value, p.start, within, count, fewest, p.unit, determined)


def solve_all(
    free: Sequence[Free], fixed: Mapping[str, float], errors: Errors, common: Sequence[Common] = ()
) -> dict[str, float]:
    """Fits all of `free`, whether or not the data determine them. `fixed` has the values of the other
    properties."""
    return _values(free, _fit(free, fixed, errors, common, 60).x)


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
    """Returns the names of the properties to reset next: all that the data hardly affect (`together`), or the
    least determined.
    """
    open_ = [(r, p.name) for p, r in zip(free, best.remaining, strict=True) if p.name not in needed]
    untouched = {name for r, name in open_ if r > UNTOUCHED}
    if together and len(untouched) > 1:
        return untouched
    remaining, name = max(open_, default=(0.0, ""))
    return {name} if remaining > DETERMINED else set()


def _fit(
    free: Sequence[Free],
    fixed: Mapping[str, float],
    errors: Errors,
    common: Sequence[Common],
    evaluations: int,
) -> _Best:
    from scipy.optimize import least_squares

    spread = np.array([p.uncertainty for p in free])
    prior = np.diag(spread**2)
    for factor in common:
        exponents = factor.uncertainty * np.array(factor.of(free))
        prior += np.outer(exponents, exponents)
    whitened = np.linalg.inv(np.linalg.cholesky(prior)) if common and free else np.diag(1 / spread)

    def residuals(x: Array) -> Array:
        return np.concatenate([_robust(errors({**fixed, **_values(free, x)})), whitened @ x])

    if not free:
        cost = float(np.sum(residuals(np.zeros(0)) ** 2)) / 2
        return _Best(np.zeros(0), np.zeros(0), np.zeros(0), cost, 1.0)
    low = np.array([max(np.log(p.low / p.begin), -6 * p.uncertainty) for p in free])
    high = np.array([min(np.log(p.high / p.begin), 6 * p.uncertainty) for p in free])
    begin = np.clip(np.zeros(len(free)), low + 1e-6, high - 1e-6)
    result = least_squares(
        residuals, begin, bounds=(low, high), x_scale=spread, max_nfev=evaluations, diff_step=STEP
    )
    count = len(result.fun) - len(free)
    data, of_prior = result.jac[:count], result.jac[count:]
    information, known = data.T @ data, of_prior.T @ of_prior
    parameters = float(np.trace(np.linalg.solve(information + known, information)))
    # If the model deviates from the measurements by more than their noise, they determine correspondingly less.
    misfit = float(np.sum(result.fun[:count] ** 2))
    excess = max(1.0, (PRIOR_MEASUREMENTS + misfit) / (PRIOR_MEASUREMENTS + max(count - parameters, 0.0)))
    covariance = np.linalg.inv(information / excess + known)
    deviation = np.sqrt(np.diag(covariance))
    return _Best(result.x, deviation, deviation / np.sqrt(np.diag(prior)), float(result.cost), excess)


def _robust(errors: Array) -> Array:
    """Returns the errors with a soft L1 loss beyond `OUTLIER` standard deviations."""
    z = errors / OUTLIER
    return np.sign(z) * OUTLIER * np.sqrt(2 * (np.sqrt(1 + z**2) - 1))


def _values(free: Sequence[Free], x: Array) -> dict[str, float]:
    return {p.name: float(p.begin * np.exp(v)) for p, v in zip(free, x, strict=True)}
