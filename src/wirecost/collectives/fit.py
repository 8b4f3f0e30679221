"""Fits time over size: straight pieces (alpha + S / bandwidth) that meet at breakpoints, as many as the data show.

Breakpoints are where a library changes its protocol or algorithm, or a link begins to saturate. They are
found among the sizes measured: one more is kept as long as it lowers BIC (G. Schwarz, "Estimating the dimension
of a model", Annals of Statistics 6, 1978) on the logarithm of measured over fitted time, so that every size
counts by its relative error.
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
"""Two straight pieces have four parameters, and a residual needs more points than those."""
MIN_SPAN = 16.0
"""Latency and bandwidth can't be told apart where the largest size is not well above the smallest."""
MAX_BREAKS = 6
NOISE_FLOOR = 0.01
"""Repeated measurements differ by about a percent: a smaller residual is not worth another piece."""
FLAT = 1e-6
"""Nanoseconds for each byte of a piece that does not grow: nothing, but a bandwidth can be said."""
ROUNDING = 1e-9
"""The least slope as a share of the steepest."""
RESAMPLES = 400
CONFIDENCE = 0.90


class FitRefusedError(WirecostError):
    """Too few or too narrow measurements for a fit that means something."""


@dataclass(frozen=True)
class Piecewise:
    """time(S) = `base` + `slope` S + sum of `changes` x max(0, S - `breaks`), in ns and bytes."""

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
        """(from size, intercept in ns, ns per byte) of each straight piece."""
        intercept, slope = self.base, self.slope
        found = [(0.0, intercept, slope)]
        for at, change in zip(self.breaks, self.changes, strict=True):
            intercept, slope = intercept - change * at, slope + change
            found.append((at, intercept, slope))
        return found


@dataclass(frozen=True)
class Fit:
    """`residuals` are measured / fitted - 1 for each size; `left_out` the same with that size left out of the
    fit. Intervals cover 90 %, from resampled residuals."""

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
        """Of the last piece: what an endless message tends to."""
        return self.curve.pieces()[-1][2]

    @property
    def error(self) -> float:
        """Median absolute relative error on sizes left out one at a time."""
        return float(np.median(np.abs(self.left_out)))


def fit(sizes: Sequence[int], times_ns: Sequence[float], *, least_slope: float = 0.0, seed: int = 1) -> Fit:
    """Fits measurements; several of one size count as their median.

    Args:
        least_slope: ns per byte that endless messages can't stay below, where the link's rate is known.

    Raises:
        FitRefusedError: with what is missing.
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
            raise FitRefusedError(f"no fit: {time} ns for {size} B is no measurement")
        by_size.setdefault(int(size), []).append(time)
    ordered = sorted(by_size)
    return np.array(ordered, float), np.array([float(np.median(by_size[s])) for s in ordered])


def select(s: Array, t: Array, least_slope: float = 0.0) -> Piecewise:
    """The best curve by BIC: breakpoints are added one by one, then each is tried elsewhere and left out."""
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
        # Nothing straight that grows goes through these points: the least bad is proportional.
        best = Piecewise((), 0.0, max(least_slope, float(np.exp(np.mean(np.log(t / s))))), ())
    return best


def _neighbours(chosen: tuple[float, ...], inner: Sequence[float], count: int) -> list[tuple[float, ...]]:
    """One breakpoint more, one elsewhere, one less; never so many that nothing is left over for a residual."""
    found: set[tuple[float, ...]] = set()
    for at in inner:
        if at in chosen:
            found.add(tuple(b for b in chosen if b != at))
            continue
        # Two parameters for each, and at least two sizes left over.
        if len(chosen) < min(MAX_BREAKS, (count - 4) // 2):
            found.add(tuple(sorted((*chosen, at))))
        for old in chosen:
            found.add(tuple(sorted(b if b != old else at for b in chosen)))
    return sorted(found)


def _design(s: Array, breaks: Sequence[float]) -> Array:
    """A column for the start and one for the way that each piece has come at a size."""
    beyond = np.maximum(0.0, s[:, None] - np.array([-math.inf, 0.0, *breaks]))
    beyond[:, 0] = 1.0
    beyond[:, 1:-1] -= beyond[:, 2:]
    return beyond


def _solve(s: Array, t: Array, breaks: tuple[float, ...], least_slope: float = 0.0) -> Piecewise | None:
    """Least squares of the relative error; None where time would not be positive, or not grow at last.

    A piece that would shrink with size is flat: small messages of some libraries do take less time than smaller
    ones, but a curve that follows them can't be believed between the sizes measured.
    """
    scale = s[-1]
    design = _design(s / scale, [b / scale for b in breaks]) / t[:, None]
    found, least = _growing(design, np.ones_like(t)), least_slope * scale
    if found[-1] < least:
        found = np.append(_growing(design[:, :-1], np.ones_like(t) - least * design[:, -1]), least)
    if found[0] < 0 or found[-1] <= 0:
        return None
    slopes = found[1:] / scale
    # What is flat beside a steep piece must survive their difference.
    slopes = np.maximum(slopes, max(FLAT, ROUNDING * float(slopes.max())))
    return Piecewise(breaks, float(found[0]), float(slopes[0]), tuple(np.diff(slopes).tolist()))


def _growing(design: Array, target: Array) -> Array:
    """Least squares with no slope below zero: those that would be are left out, the lowest first."""
    # Columns differ by orders of magnitude where times do.
    norms = np.linalg.norm(design, axis=0)
    columns = np.arange(design.shape[1])
    while True:
        found = np.linalg.lstsq(design[:, columns] / norms[columns], target, rcond=None)[0] / norms[columns]
        if len(columns) == 1 or found[1:].min() >= 0:
            break
        columns = np.delete(columns, 1 + int(np.argmin(found[1:])))
    whole = np.zeros(design.shape[1])
    whole[columns] = found
    return whole


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
    # Draws that had no physical solution are missing, which can leave all of the others on one side.
    base, last = curve.base, curve.pieces()[-1][2]
    return (
        (min(float(low_latency), base), max(float(high_latency), base)),
        (min(float(low_slope), last), max(float(high_slope), last)),
    )
