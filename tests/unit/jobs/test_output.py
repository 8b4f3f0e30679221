"""The reason of a failure is found in a job's output, also behind what torchrun prints about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.jobs.lines import LONGEST_LINE, Lines
from wirecost.jobs.output import failed_rank, last_line

TORCHRUN = """\
[rank1]: ValueError: the job's own error
E1130 02:54:00.813000 8 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_02:54:00
  host      : host1
  rank      : 1 (local_rank: 0)
  exitcode  : 1 (pid: 11)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_the_last_line_is_the_jobs_own() -> None:
    assert last_line(TORCHRUN.splitlines()) == "[rank1]: ValueError: the job's own error"
    assert last_line(["  error: no such file ", "-----", ""]) == "error: no such file"
    assert last_line(TORCHRUN.splitlines()[1:3]) == "Traceback (most recent call last):"
    assert last_line(["===", ""]) is None and last_line([]) is None


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("1", "ended with exit code 1"),
        ("-9", "was killed by SIGKILL"),
        ("-11", "was killed by SIGSEGV"),
        ("-99", "was killed by signal 99"),
    ],
)
def test_torchrun_says_which_rank_failed(code: str, how: str) -> None:
    text = TORCHRUN.replace("exitcode  : 1 ", f"exitcode  : {code} ")
    assert failed_rank(text.splitlines()) == f"rank 1 {how}"


def test_output_without_torchrun_names_no_rank() -> None:
    assert failed_rank(["rank      : 1 (local_rank: 0)", "exitcode  : 1 (pid: 11)"]) is None
    assert failed_rank(TORCHRUN.splitlines()[:12]) is None


@given(st.lists(st.sampled_from(["ab", "c", "", " 12%"]), max_size=8), st.data())
def test_lines_are_the_same_wherever_the_output_is_cut(texts: list[str], data: st.DataObject) -> None:
    ends = [data.draw(st.sampled_from(["\n", "\r", "\r\n"])) for _ in texts]
    # A carriage return and an empty line that ends with a line feed are one end.
    ends = [
        "\r\n" if end == "\r" and number + 1 < len(texts) and not texts[number + 1] else end
        for number, end in enumerate(ends)
    ]
    output = "".join(text + end for text, end in zip(texts, ends, strict=True)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=4)))
    lines, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(output)], strict=True):
        if start < end:
            found += lines.ended_by(output[start:end])
    assert [line.decode() for line in found + lines.ended_by(b"")] == texts


def test_a_line_is_bounded_and_the_last_needs_no_end() -> None:
    lines = Lines()
    assert lines.ended_by(b"x" * LONGEST_LINE) == []
    assert lines.ended_by(b"yz\nlast") == [b"x" * LONGEST_LINE]
    assert lines.ended_by(b"") == [b"last"]
    assert lines.ended_by(b"") == []
