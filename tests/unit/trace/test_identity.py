"""Which rank a file is of."""

from __future__ import annotations

import pytest

from wirecost.trace.identity import distributed_info, parse_rank_options, rank_by_name, rank_by_option
from wirecost.trace.source import TraceError


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("lora_rank16.json", None), ("rank16-lora.json", None), ("low_rank_4.json", None), ("lora-r16-rank3.json", 3),
        ("rank0_trace.json", 0), ("rank-34.json.gz", 34), ("worker3_step_12.1694128201545.pt.trace.json.gz", 3),
        ("/a/rank7/trace.json", None), ("job.rank_12.json", 12), ("Rank5.json", 5), ("prank3.json", None),
        ("rank1_worker2.json", None), ("local_rank0.json", None), ("tp_rank1_pp-rank0.json", None),
        ("global_rank3_local_rank0.json", 3), ("ddp_rank2.json", 2), ("k8s-worker-3_12345.1694128201545.pt.trace.json", None),
        ("worker-3_12345.1694128201545.pt.trace.json", None), ("rank-box_77.1694128201545.pt.trace.json.gz", None), ("rank1_rank1.json", 1), ("trace.json", None), ("rank123456789.json", None),
    ],
)  # fmt: skip
def test_ranks_by_name(name: str, rank: int | None) -> None:
    assert rank_by_name(name) == rank


@pytest.mark.parametrize("value", [-1, 10**30, "3", None, 1.5, True, [1]])
def test_a_rank_that_cannot_be_is_unknown(value: object) -> None:
    assert "rank" not in distributed_info({"distributedInfo": {"rank": value, "world_size": 4}})


def test_distributed_info_that_is_no_object() -> None:
    assert distributed_info({"distributedInfo": [1, 2]}) == {}
    assert distributed_info({}) == {}


def test_ranks_by_option() -> None:
    options = parse_rank_options(["a=b.json=3", "*.host2.*=2"])
    assert rank_by_option("/x/a=b.json", options) == 3
    assert rank_by_option("t.host2.json", options) == 2
    assert rank_by_option("other.json", options) is None


@pytest.mark.parametrize("text", ["a.json", "=3", "a=-1", "a=x", "a=99999999999", "a=²"])
def test_an_invalid_rank_option_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="FILE=RANK"):
        parse_rank_options([text])
