"""Few cases that cover all pairs: none is missing, the impossible are named, the same every time."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from support.pairwise import cover_pairs, pairs_of

factor = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@settings(deadline=None)
@given(st.lists(factor, min_size=2, max_size=4))
def test_every_pair_is_covered_and_the_forbidden_one_is_refused(values: list[list[str]]) -> None:
    factors = {f"f{n}": v for n, v in enumerate(values)}
    forbidden = (("f0", values[0][0]), ("f1", values[1][0]))

    def refusal(case: dict[str, str]) -> str | None:
        return "no" if forbidden in pairs_of(case) else None

    cover = cover_pairs(factors, refusal)
    covered = set().union(*map(pairs_of, cover.cases))
    every = {((a, x), (b, y)) for (a, xs), (b, ys) in combinations(factors.items(), 2) for x, y in product(xs, ys)}
    assert every
    assert covered | cover.refused.keys() == every
    assert forbidden in cover.refused
    assert covered.isdisjoint(cover.refused)
    assert cover == cover_pairs(factors, refusal)
