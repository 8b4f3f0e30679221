"""Fits stacks, GPUs and links of many sources together, with priors that they share.

A property of a stack is the mean over the stacks of its kind (with fused or unfused attention) times the stack's
own deviation, and both are fitted. So are the properties of GPUs (with the mean of their architecture) and links.
Such a model is called hierarchical or multilevel (Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, chapter
5). A stack without a row gets the mean, and the spread between stacks as its uncertainty. The fit is the most
probable value of all properties; their standard deviations are those of the linearised problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wirecost.calibration.inputs.evaluate import Group, grouped, with_choices
from wirecost.calibration.inputs.rows import TableRow
from wirecost.calibration.levels import JUDGED, Level, Shared, levels_of, value_at
from wirecost.calibration.properties import Values
from wirecost.calibration.solver import Array

ROW_NOISE = 0.04
"""Standard deviation of log(measured / predicted) of one row, given the properties."""
SCATTER = {
    "jz_v100": 0.15,
    "mtnlg": 0.2,
    "nvidia_dle_bert": 0.1,
    "mb25_moe": 0.1,
    "korthikanti2022_tab5": 0.02,
    "megatron_sc21": 0.02,
}
"""The same of tables whose rows scatter more or less: the authors of Megatron-LM measured both papers' tables on a
machine of their own; allocations of Jean Zay's V100 vary by up to 40 % from day to day; runs of
MT-NLG take 1.2 times what the same model on the same machine took in korthikanti2022_tab5; BERT's sequences are
padded or not by version; the same mixture of experts differs up to twofold between two versions of a container."""
FULL_ROWS = 300
"""Number of rows with which a source has its full weight. More rows of a source share that weight, because they
repeat what its cluster and software have in common."""
ROBUST = 2.0
STEP = 1e-3
ROUNDS = 25


Mask = npt.NDArray[np.bool_]


@dataclass
class Posterior:
    """The result of a fit. `x` are the deviations of all levels in logarithms (of shares in log-odds), with their
    covariance."""

    levels: list[Level]
    x: Array
    covariance: Array
    cost: float


class Sources:
    """Rows of several sources. `labels` name each row's source."""

    def __init__(self, rows: Sequence[TableRow], labels: Sequence[str]) -> None:
        self.rows = with_choices(rows, {})
        self.labels: npt.NDArray[np.str_] = np.array(labels)
        self.measured = np.array([float(row.measured or np.nan) for row in self.rows])
        self.groups = grouped(self.rows)

    def weights(self, keep: Mask) -> Array:
        """Returns 1 / noise of each row, 0 for the rows that are not kept."""
        scale = np.zeros(len(self.labels))
        for label in np.unique(self.labels[keep]):
            mask = (self.labels == label) & keep
            noise = SCATTER.get(str(label), ROW_NOISE)
            scale[mask] = 1 / (noise * np.sqrt(max(1.0, mask.sum() / FULL_ROWS)))
        return scale


OF_SOURCE = 0.02
"""Standard deviation of what the rows of a source have in common beside the properties (a cluster's clocks, a
version's options), in log(measured)."""


class Problem:
    """The rows of `sources` that are kept, as a least-squares problem over the levels and an offset of each
    source. The offsets are not part of any prediction."""

    def __init__(self, sources: Sources, keep: Mask) -> None:
        self.sources, self.keep = sources, keep
        self.offsets = {str(label): i for i, label in enumerate(np.unique(sources.labels[keep]))}
        self.offset_of = np.array([self.offsets.get(str(label), 0) for label in sources.labels])
        self.scale = sources.weights(keep)
        self.levels = levels_of([sources.rows[i].parts for i in range(len(sources.rows))])
        self.groups = [g for g in sources.groups if keep[g.members].any()]
        self.terms = {id(g): terms_of(self.levels, _names_of(g)) for g in self.groups}

    def logs(self, group: Group, values: Values) -> Array:
        """Returns log(predicted) of the group's rows under values of properties."""
        return np.log(np.broadcast_to(group.iterate(values).total_s, len(group.members)))

    def weighted(self, group: Group, logs: Array, x: Array) -> tuple[Array, Array]:
        """Returns the weighted errors of the group's rows with a soft L1 loss, and their derivatives by
        log(predicted)."""
        members = group.members
        offsets = x[len(self.levels) + self.offset_of[members]]
        z = (logs - np.log(self.sources.measured[members]) + offsets) * self.scale[members] / ROBUST
        root = np.sqrt(1 + z**2)
        soft = np.sqrt(2 * (root - 1))
        slope = np.where(soft > 1e-6, np.abs(z) / root / np.maximum(soft, 1e-6), 1.0)
        return np.sign(z) * ROBUST * soft, slope * self.scale[members]

    def linearised(self, x: Array) -> tuple[Array, Array]:
        """Returns errors and Jacobian at `x`."""
        errors, rows = [], []
        for group in self.groups:
            terms = self.terms[id(group)]
            values = terms.values(x)
            logs = self.logs(group, values)
            weighted, slope = self.weighted(group, logs, x)
            block = np.zeros((len(logs), len(x)))
            for name, shared, places in terms.sums:
                moved = terms.value(name, shared, float(sum(x[i] for i in places)) + STEP)
                change = (self.logs(group, {**values, name: moved}) - logs) / STEP * slope
                block[:, list(places)] = change[:, None]
            block[np.arange(len(logs)), len(self.levels) + self.offset_of[group.members]] = slope
            errors.append(weighted)
            rows.append(block)
        return np.concatenate(errors), np.concatenate(rows)

    def cost(self, x: Array, sd: Array) -> float:
        """Returns half the sum of squares, prior included."""
        total = 0.0
        for group in self.groups:
            logs = self.logs(group, self.terms[id(group)].values(x))
            total += float(np.sum(self.weighted(group, logs, x)[0] ** 2))
        return 0.5 * (total + float(np.sum((x / sd) ** 2)))


def _names_of(group: Group) -> tuple[tuple[str, str, str], ...]:
    parts = group.parts
    kind = parts.stack.attention.kind
    return (
        ("stack", parts.stack.name, kind),
        ("gpu", parts.gpu.name, parts.gpu.architecture),
        ("link", parts.intra.name, "intra"),
        ("link", parts.inter.name, "inter"),
    )


@dataclass(frozen=True)
class Terms:
    """The properties of some owners as sums of levels: for each its name, its table entry and the levels'
    places."""

    sums: tuple[tuple[str, Shared, tuple[int, ...]], ...]
    levels: tuple[int, ...]

    def values(self, x: Array) -> Values:
        """Returns the properties at deviations `x`."""
        return {
            name: self.value(name, shared, float(sum(x[i] for i in places))) for name, shared, places in self.sums
        }

    @staticmethod
    def value(name: str, shared: Shared, deviation: float) -> float:
        """Returns a property at a deviation from its mean, with what is judged for its stack."""
        ratio = JUDGED.get((name.split()[1], shared.key), 1.0)
        return value_at(shared, deviation + math.log(ratio))


def terms_of(levels: Sequence[Level], owners: Sequence[tuple[str, str, str]]) -> Terms:
    """Returns the properties of owners (kind, name, class) in terms of the levels."""
    places: dict[str, list[int]] = {}
    entries: dict[str, Shared] = {}
    for owner in owners:
        for i, level in enumerate(levels):
            if level.touches(owner):
                name = f"{owner[0]} {owner[1]} {level.key}"
                places.setdefault(name, []).append(i)
                entries[name] = level.shared
    sums = tuple((name, entries[name], tuple(indices)) for name, indices in places.items())
    return Terms(sums, tuple(sorted({i for indices in places.values() for i in indices})))


def values_of(levels: Sequence[Level], x: Array, owners: Sequence[tuple[str, str, str]]) -> Values:
    """Returns the properties of owners (kind, name, class) at deviations `x`."""
    return terms_of(levels, owners).values(x)


def fit_sources(
    sources: Sources, keep: Mask | None = None, start: Array | None = None, rounds: int = ROUNDS
) -> Posterior:
    """Returns the most probable properties given the rows that are kept (Levenberg-Marquardt from `start`)."""
    keep = np.ones(len(sources.rows), dtype=bool) if keep is None else keep
    problem = Problem(sources, keep)
    levels = problem.levels
    sd = np.array([level.sd for level in levels] + [OF_SOURCE] * len(problem.offsets))
    x = np.zeros(len(sd))
    if start is not None:
        x[: len(levels)] = start
    damping, cost = 1e-2, problem.cost(x, sd)
    hessian = np.diag(1 / sd**2)
    for _ in range(rounds):
        errors, jacobian = problem.linearised(x)
        hessian = jacobian.T @ jacobian + np.diag(1 / sd**2)
        gradient = jacobian.T @ errors + x / sd**2
        before = cost
        for _ in range(8):
            step = -np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            trial = x + np.clip(step, -1.5 * sd, 1.5 * sd)
            trial_cost = problem.cost(trial, sd)
            if trial_cost < cost:
                x, cost, damping = trial, trial_cost, max(damping / 5, 1e-7)
                break
            damping *= 6
        if before - cost < 0.05:
            break
    count = len(levels)
    covariance: Array = np.linalg.inv(hessian).astype(np.float64)
    return Posterior(levels, x[:count], covariance[:count, :count], cost)


def refined(sources: Sources, posterior: Posterior, stack: str, keep: Mask, rounds: int = ROUNDS) -> Posterior:
    """Returns the fit with one stack's own deviations fitted once more, to the rows that are kept, each with its
    full weight. Means, GPUs and links stay as they are."""
    problem = Problem(sources, keep)
    problem.scale = np.where(keep, 1 / ROW_NOISE, 0.0)
    own = [i for i, level in enumerate(posterior.levels) if level.shared.kind == "stack" and level.name == stack]
    sd = np.array([level.sd for level in posterior.levels] + [OF_SOURCE] * len(problem.offsets))
    x = np.zeros(len(sd))
    x[: len(posterior.levels)] = posterior.x
    prior = np.array([posterior.levels[i].sd for i in own])
    damping, cost = 1e-2, problem.cost(x, sd)
    for _ in range(rounds):
        errors, jacobian = problem.linearised(x)
        jacobian = jacobian[:, own]
        hessian = jacobian.T @ jacobian + np.diag(1 / prior**2)
        gradient = jacobian.T @ errors + x[own] / prior**2
        before = cost
        for _ in range(8):
            trial = x.copy()
            trial[own] -= np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            trial_cost = problem.cost(trial, sd)
            if trial_cost < cost:
                x, cost, damping = trial, trial_cost, max(damping / 5, 1e-7)
                break
            damping *= 6
        if before - cost < 0.05:
            break
    return Posterior(posterior.levels, x[: len(posterior.levels)], posterior.covariance, cost)


def predict(sources: Sources, posterior: Posterior, mask: Mask) -> tuple[Array, Array]:
    """Returns log(predicted / measured) of the rows of `mask`, and the standard deviation of log(predicted) that
    the properties' uncertainty causes."""
    errors = np.full(len(sources.rows), np.nan)
    spread = np.full(len(sources.rows), np.nan)
    for group in sources.groups:
        own = mask[group.members]
        if not own.any():
            continue
        terms = terms_of(posterior.levels, _names_of(group))

        def logs(x: Array, group: Group = group, terms: Terms = terms) -> Array:
            return np.log(np.broadcast_to(group.iterate(terms.values(x)).total_s, len(group.members)))

        base = logs(posterior.x)
        touched = list(terms.levels)
        block = np.zeros((len(base), len(touched)))
        for k, i in enumerate(touched):
            moved = posterior.x.copy()
            moved[i] += STEP
            block[:, k] = (logs(moved) - base) / STEP
        covariance = posterior.covariance[np.ix_(touched, touched)]
        members = group.members[own]
        errors[members] = (base - np.log(sources.measured[group.members]))[own]
        spread[members] = np.sqrt(np.einsum("ij,jk,ik->i", block, covariance, block))[own]
    return errors[mask], spread[mask]
