"""Every pair of settings (model, strategy, precision, compilation) trains as one process does, or is refused."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from support.matrix import EPSILONS, experiment_of, factors, loss_tolerance, matrix, reference_of
from support.pairwise import Case, Cover, pairs_of
from support.parity import Trained, train_all

RANKS = 4
ITERATIONS = 2
PARTS = 2
"""The cases are trained in parts, so that none takes too long on a busy machine."""


def test_every_pair_of_settings_is_trained_or_refused_in_one_line() -> None:
    cover = cover_of_ranks()
    for case in cover.cases:
        print("trained:", " ".join(case.values()))
    for (first, second), reason in cover.refused.items():
        print("refused:", *first, *second, reason)
        assert "\n" not in reason
    covered = set().union(*map(pairs_of, cover.cases))
    assert len(covered) + len(cover.refused) == number_of_pairs() > 0


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[tuple[str, str], ...], Trained]:
    """What one process makes of each case, by the settings of `reference_of`."""
    cases = sorted({tuple(reference_of(case).items()) for case in cover_of_ranks().cases})
    experiments = [experiment_of(dict(case), 1, iterations=ITERATIONS) for case in cases]
    return dict(zip(cases, train_all(experiments, tmp_path_factory.mktemp("one")), strict=True))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_of_settings_trains_as_one_process_does(
    part: int, expected: dict[tuple[tuple[str, str], ...], Trained], tmp_path: Path
) -> None:
    cases = sorted(cover_of_ranks().cases, key=lambda case: case["compile"])[part::PARTS]
    assert cases
    trained = train_all(
        [experiment_of(case, RANKS, iterations=ITERATIONS) for case in cases], tmp_path, compiler="eager"
    )
    wrong = []
    for case, result in zip(cases, trained, strict=True):
        wrong += differences(case, result, expected[tuple(reference_of(case).items())])
    assert not wrong, "\n".join(wrong)


@functools.cache
def cover_of_ranks() -> Cover:
    return matrix(RANKS)


def number_of_pairs() -> int:
    counts = [len(set(values)) for values in factors(RANKS).values()]
    return (sum(counts) ** 2 - sum(count**2 for count in counts)) // 2


def differences(case: Case, trained: Trained, expected: Trained) -> list[str]:
    """Says which losses and parameters differ by more than rounding explains."""
    name = " ".join(case.values())
    found = []
    tolerance = loss_tolerance(case)
    for number, (loss, right) in enumerate(zip(trained.losses, expected.losses, strict=True)):
        if not abs(loss - right) <= tolerance * abs(right):
            found.append(f"{name}: loss {loss} of iteration {number} is not {right}")
    if trained.parameters.keys() != expected.parameters.keys():
        return [*found, f"{name}: other parameters"]
    exact = case["precision"] == "fp32" and case["gradient_traffic"] == "native"
    # A gradient that is nearly zero may miss every step of Adam, and a parameter may be rounded to a neighbour.
    absolute = 1e-5 if exact else EPSILONS[case["precision"]] + 2 * 1e-3 * len(trained.losses)
    for parameter, value in trained.parameters.items():
        right = expected.parameters[parameter].float()
        if not torch.allclose(value.float(), right, rtol=1e-4, atol=absolute):
            off = float((value.float() - right).abs().max())
            found.append(f"{name}: {parameter} is off by {off}")
    return found
