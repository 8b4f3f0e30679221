"""Fits time over size by straight pieces (alpha + S / bandwidth) that meet at breakpoints.

A breakpoint is a size at which a library changes its protocol or algorithm, or a link begins to saturate.
Breakpoints are chosen among the measured sizes. Another one is kept if it lowers BIC (G. Schwarz, "Estimating the
dimension of a model", Annals of Statistics 6, 1978) on the logarithm of measured over fitted time, so that every
size counts by its relative error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wirecost.errors import WirecostError

Array = NDArray[np.float64]

MIN_SIZES = 6
"""Least number of sizes. Two straight pieces have four parameters, and residuals need more points than parameters.
"""
MIN_SPAN = 16.0
"""Least ratio of the largest to the smallest size. Below it latency and bandwidth can't be distinguished."""
MAX_BREAKS = 6
NOISE_FLOOR = 0.01
"""Smallest relevant relative residual. Repeated measurements differ by about one percent, so a smaller one doesn't
justify another piece.
"""
FLAT = 1e-6
"""Slope in ns per byte of a piece that doesn't grow. It is small but not 0, so that its bandwidth is finite."""
ROUNDING = 1e-9
"""Least slope as a share of the steepest slope."""
RESAMPLES = 400
CONFIDENCE = 0.90


class FitRefusedError(WirecostError):
    """Raised if the measurements are too few, or their sizes too close together, for a meaningful fit."""


@dataclass(frozen=True)
class Piecewise:
    """A piecewise linear function: time(S) = `base` + `slope` S + sum of `changes` x max(0, S - `breaks`), in ns
    and bytes.
    """

    breaks: tuple[float, ...]
    base: float
    slope: float
    changes: tuple[float, ...]

    def __call__(self, sizes: Array | float) -> Array:
        s = np.asarray(sizes, dtype=np.float64)
        total = self.base + self.slope * s
        for at, change in zip(self.breaks, self.changes, strict=True):
            total = total + change * np.maximum(0.0, s - at)
        return total

    def pieces(self) -> list[tuple[float, float, float]]:
        """Returns (first size in bytes, intercept in ns, slope in ns per byte) of each straight piece."""
        intercept, slope = self.base, self.slope
        pieces_from = [(0.0, intercept, slope)]
        for at, change in zip(self.breaks, self.changes, strict=True):
            intercept, slope = intercept - change * at, slope + change
            pieces_from.append((at, intercept, slope))
        return pieces_from


@dataclass(frozen=True)
class Fit:
    """A fit of time over size.

    `residuals` are measured / fitted - 1 for each size. `left_out` are the same with that size left out of the
    fit. Intervals cover 90 % and come from resampled residuals.
    """

    curve: Piecewise
    sizes: tuple[int, ...]
    times_ns: tuple[float, ...]
    residuals: tuple[float, ...]
    left_out: tuple[float, ...]
    latency_interval_ns: tuple[float, float]
    slope_interval: tuple[float, float]

    @property
    def latency_ns(self) -> float:
        return self.curve.base

    @property
    def slope_ns_per_byte(self) -> float:
        """Returns the slope of the last piece, which is the limit for large messages."""
        return self.curve.pieces()[-1][2]

    @property
    def error(self) -> float:
        """Returns the median absolute relative error on sizes that were left out one at a time."""
        return float(np.median(np.abs(self.left_out)))


def fit(sizes: Sequence[int], times_ns: Sequence[float], *, least_slope: float = 0.0, seed: int = 1) -> Fit:
    """Returns the fit of time over size. Several measurements of one size count as their median.

    Args:
        least_slope: lower bound of the last piece's slope in ns per byte, from the link's rate if that is known.

    Raises:
        FitRefusedError: names what is missing.
    """
    s, t = _medians(sizes, times_ns)
    if len(s) < MIN_SIZES:
        raise FitRefusedError(f"no fit from {len(s)} sizes: at least {MIN_SIZES} are needed")
    if s[-1] < MIN_SPAN * s[0]:
        raise FitRefusedError(
            f"no fit from sizes of {s[0]:.0f} to {s[-1]:.0f} B: the largest must be {MIN_SPAN:.0f} times "
            "the smallest"
        )
    curve = select(s, t, least_slope)
    left_out = [
        float(t[i] / select(np.delete(s, i), np.delete(t, i), least_slope)(s[i]) - 1) for i in range(len(s))
    ]
    latency, slope = _bootstrap(curve, s, t, seed, least_slope)
    return Fit(
        curve,
        tuple(int(x) for x in s),
        tuple(float(x) for x in t),
        tuple(float(x) for x in t / curve(s) - 1),
        tuple(left_out),
        latency,
        slope,
    )


def _medians(sizes: Sequence[int], times_ns: Sequence[float]) -> tuple[Array, Array]:
    by_size: dict[int, list[float]] = {}
    for size, time in zip(sizes, times_ns, strict=True):
        if size <= 0 or not (math.isfinite(time) and time > 0):
            raise FitRefusedError(f"no fit: {time} ns for {size} B is not a measurement")
        by_size.setdefault(int(size), []).append(time)
    ordered = sorted(by_size)
    return np.array(ordered, float), np.array([float(np.median(by_size[s])) for s in ordered])


def select(s: Array, t: Array, least_slope: float = 0.0) -> Piecewise:
    """Returns the curve with the lowest BIC found by adding, moving and removing single breakpoints."""
    best, score = _solve(s, t, (), least_slope), math.inf
    if best is not None:
        score = _bic(best, s, t)
    chosen: tuple[float, ...] = ()
    inner = [float(x) for x in s[1:-1]]
    improved = True
    while improved:
        improved = False
        for breaks in _neighbours(chosen, inner, len(s)):
            candidate = _solve(s, t, breaks, least_slope)
            if candidate is not None and (value := _bic(candidate, s, t)) < score - 1e-9:
                best, score, chosen, improved = candidate, value, breaks, True
    if best is None:
        # No growing line fits these points: use a proportional one.
        best = Piecewise((), 0.0, max(least_slope, float(np.exp(np.mean(np.log(t / s))))), ())
    return best


def _neighbours(chosen: tuple[float, ...], inner: Sequence[float], count: int) -> list[tuple[float, ...]]:
    """Returns the neighbouring choices: one breakpoint added, moved or removed. The number stays low enough for
    residuals.
    """
    neighbours: set[tuple[float, ...]] = set()
    for at in inner:
        if at in chosen:
            neighbours.add(tuple(b for b in chosen if b != at))
            continue
        # Each breakpoint takes two parameters, and at least two sizes must remain.
        if len(chosen) < min(MAX_BREAKS, (count - 4) // 2):
            neighbours.add(tuple(sorted((*chosen, at))))
        for old in chosen:
            neighbours.add(tuple(sorted(b if b != old else at for b in chosen)))
    return sorted(neighbours)


def _design(s: Array, breaks: Sequence[float]) -> Array:
    """Returns the design matrix: a column for the intercept, and one for the length of each piece up to a size."""
    beyond = np.maximum(0.0, s[:, None] - np.array([-math.inf, 0.0, *breaks]))
    beyond[:, 0] = 1.0
    beyond[:, 1:-1] -= beyond[:, 2:]
    return beyond


def _solve(s: Array, t: Array, breaks: tuple[float, ...], least_slope: float = 0.0) -> Piecewise | None:
    """Returns the least-squares curve of the relative error; None if its time would not be positive or not grow at
    the end.

    A piece that would shrink with size is made flat. In some libraries a message can take less time than a smaller
    one, but a curve that follows this is unreliable between the measured sizes.
    """
    scale = s[-1]
    design = _design(s / scale, [b / scale for b in breaks]) / t[:, None]
    coefficients, least = _growing(design, np.ones_like(t)), least_slope * scale
    if coefficients[-1] < least:
        coefficients = np.append(_growing(design[:, :-1], np.ones_like(t) - least * design[:, -1]), least)
    if coefficients[0] < 0 or coefficients[-1] <= 0:
        return None
    slopes = coefficients[1:] / scale
    # A flat piece next to a steep one must not vanish in their difference.
    slopes = np.maximum(slopes, max(FLAT, ROUNDING * float(slopes.max())))
    return Piecewise(breaks, float(coefficients[0]), float(slopes[0]), tuple(np.diff(slopes).tolist()))


def _growing(design: Array, target: Array) -> Array:
    """Solves least squares with non-negative slopes: negative ones are left out, the lowest first."""
    # Columns differ by orders of magnitude where times do.
    norms = np.linalg.norm(design, axis=0)
    columns = np.arange(design.shape[1])
    while True:
        solution = np.linalg.lstsq(design[:, columns] / norms[columns], target, rcond=None)[0] / norms[columns]
        if len(columns) == 1 or solution[1:].min() >= 0:
            break
        columns = np.delete(columns, 1 + int(np.argmin(solution[1:])))
    coefficients = np.zeros(design.shape[1])
    coefficients[columns] = solution
    return coefficients


def _bic(curve: Piecewise, s: Array, t: Array) -> float:
    n = len(s)
    mean_square = float(np.mean(np.log(t / curve(s)) ** 2))
    # Each breakpoint costs its place and its change of slope.
    parameters = 2 + 2 * len(curve.breaks)
    return n * math.log(max(mean_square, NOISE_FLOOR**2)) + parameters * math.log(n)


def _bootstrap(
    curve: Piecewise, s: Array, t: Array, seed: int, least_slope: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intervals of latency and last slope from resampled residuals (B. Efron, R. Tibshirani, "An Introduction to
    the Bootstrap", 1993, chapter 9), the breakpoints kept."""
    random = np.random.default_rng(seed)
    fitted = curve(s)
    residuals = np.log(t / fitted)
    parameters = 2 + len(curve.breaks)
    # Fitted residuals are smaller than the true ones by the parameters' share.
    residuals = (residuals - residuals.mean()) * math.sqrt(len(s) / max(1, len(s) - parameters))
    latencies, slopes = [], []
    for _ in range(RESAMPLES):
        again = fitted * np.exp(random.choice(residuals, len(s)))
        drawn = _solve(s, again, curve.breaks, least_slope)
        if drawn is not None:
            latencies.append(drawn.base)
            slopes.append(drawn.pieces()[-1][2])
    if len(latencies) < RESAMPLES / 2:
        # Most draws had no physical solution: the data don't pin the latency down.
        last = curve.pieces()[-1][2]
        return (0.0, float(t[0])), (last, last)
    tail = 100 * (1 - CONFIDENCE) / 2
    low_latency, high_latency = np.percentile(latencies, [tail, 100 - tail])
    low_slope, high_slope = np.percentile(slopes, [tail, 100 - tail])
    # Draws without a physical solution are missing, so all remaining ones can lie on one side.
    base, last = curve.base, curve.pieces()[-1][2]
    return (
        (min(float(low_latency), base), max(float(high_latency), base)),
        (min(float(low_slope), last), max(float(high_slope), last)),
    )
