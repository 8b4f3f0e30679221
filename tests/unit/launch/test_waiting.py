"""Which rank the others wait for."""

from __future__ import annotations

import subprocess
import sys

from wirecost.launch.waiting import innermost_file, slowest_rank

DUMP = """\
something printed before
Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 5 in wait

Current thread 0x00007f11 (most recent call first):
  File "{innermost}", line 12 in f
  File "/site-packages/wirecost/train/loop.py", line 40 in train
"""
WAITS = DUMP.format(innermost="/site-packages/torch/distributed/distributed_c10d.py")
COMPUTES = DUMP.format(innermost="/site-packages/torch/nn/modules/linear.py")


def test_the_rank_with_fewest_steps_is_the_one() -> None:
    assert slowest_rank([5, 3, 5], [WAITS, WAITS, COMPUTES]) == 1


def test_of_ranks_that_did_the_same_it_is_the_one_in_no_communication() -> None:
    assert slowest_rank([3, 3, 3], [WAITS, COMPUTES, WAITS]) == 1
    assert slowest_rank([3, 3, 4], [WAITS, COMPUTES, COMPUTES]) == 1


def test_a_rank_that_does_not_answer_is_the_one_even_if_others_compute() -> None:
    assert slowest_rank([3, 3, 3], [WAITS, COMPUTES, ""]) == 2


def test_an_undetermined_rank_is_none() -> None:
    assert slowest_rank([3, 3], [WAITS, WAITS]) is None
    assert slowest_rank([3, 3], [COMPUTES, COMPUTES]) is None
    assert slowest_rank([3, 3], ["", ""]) is None


def test_a_real_dump_is_read() -> None:
    code = "import faulthandler, sys\ndef f(): faulthandler.dump_traceback(all_threads=True)\nf()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert innermost_file(run.stderr) == "<string>"
