"""NCCL's own expectation of large messages, by the figures of its model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.collectives.nccl_estimate import Estimate, estimate

GB = 1e9
NVLINK = {"volta": 150, "ampere": 300, "hopper": 450, "blackwell": 900}


def expected(
    collective: str = "all_reduce",
    *,
    architecture: str = "hopper",
    ranks: int = 8,
    nodes: int = 1,
    nics: int = 8,
    nic: float | None = 50.0,
    switched: bool = True,
) -> Estimate | None:
    return estimate(
        collective,
        architecture=architecture,
        nvlink_Bps=NVLINK[architecture] * GB,
        ranks=ranks,
        nodes=nodes,
        nics=nics,
        nic_Bps=None if nic is None else nic * GB,
        switched=switched,
    )


@pytest.mark.parametrize(
    ("architecture", "collective", "algorithm", "busbw_GBps"),
    [
        # 12 links of 20 GB/s each: 240 GB/s on rings; nccl-tests measure 230 to 236 on eight A100.
        ("ampere", "all_reduce", "ring", 240.0),
        # 18 x 20.6 = 370.8: six channels of 60 are 360. Nodes of eight H100 measure 356 to 370 without NVLS.
        ("hopper", "all_gather", "ring", 360.0),
        # 8 x 40 GB/s x 0.85 x 7/8 x 2: measured 473 to 480.
        ("hopper", "all_reduce", "NVLS", 476.0),
    ],
)
def test_inside_a_node(architecture: str, collective: str, algorithm: str, busbw_GBps: float) -> None:
    result = expected(collective, architecture=architecture)
    assert result is not None
    assert (result.algorithm, result.busbw_Bps / GB) == (algorithm, pytest.approx(busbw_GBps))


def test_between_nodes() -> None:
    many = expected(ranks=64, nodes=8, switched=False)
    assert many is not None and (many.algorithm, many.busbw_Bps / GB) == ("ring", pytest.approx(360, abs=40))
    few = expected(architecture="ampere", ranks=16, nodes=2, nics=4, nic=12.5, switched=False)
    assert few is not None and few.busbw_Bps / GB == pytest.approx(50, abs=3)
    two = expected(ranks=16, nodes=2)
    assert two is not None and (two.algorithm, round(two.busbw_Bps / GB)) == ("NVLSTree", 462)


def test_what_is_not_reckoned() -> None:
    assert expected("all_to_all") is None
    assert expected(ranks=16, nodes=2, nic=None) is None
    assert (
        estimate(
            "all_reduce",
            architecture="cdna3",
            nvlink_Bps=448 * GB,
            ranks=8,
            nodes=1,
            nics=8,
            nic_Bps=None,
            switched=False,
        )
        is None
    )


@given(
    st.sampled_from(sorted(NVLINK)),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    st.integers(1, 64),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 8),
    st.floats(0.1, 100),
)
def test_rings_never_exceed_the_links(
    architecture: str, collective: str, nodes: int, per_node: int, nics: int, nic: float
) -> None:
    if nodes * per_node < 2:
        return
    result = expected(
        collective,
        architecture=architecture,
        ranks=nodes * per_node,
        nodes=nodes,
        nics=nics,
        nic=nic,
        switched=False,
    )
    if result is not None and result.algorithm == "ring":
        most = NVLINK[architecture] if nodes == 1 else nics * nic
        assert 0 < result.busbw_Bps <= most * GB * (1 + 1e-9)
