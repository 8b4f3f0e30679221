"""The prefilter dismisses lines, and never one that says something."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.ncclog import LogReader, read_logs
from wirecost.ncclog.prefilter import Prefilter

TRAINING = [
    "step 7 loss 2.3456", "GPU 0 memory 61.2 GiB", "[rank3]: backend NCCL ready", "Using FusedAdam via apex",
    "lr 0.1 -> 0.01 via cosine", "commit 5f3a: Ring attention", "NCCL_DEBUG=INFO", "Channel mixer: 4", "",
    "\x1b[32mINFO\x1b[0m | saved via NET storage",
]  # fmt: skip


def set_up(draw: random.Random) -> list[str]:
    """The lines of some communicators, as ranks of two hosts print them, each connection on several channels."""
    lines = []
    for comm in range(draw.randint(1, 3)):
        for rank in range(4):
            who = f"host{rank // 2}:{10 + rank}:{20 + rank} [{rank % 2}] NCCL INFO "
            init = f"ncclCommInitRank comm 0x{comm}{rank} rank {rank} nranks 4 cudaDev {rank % 2} busId 1a commId 0x{comm}"
            lines.append(f"{who}{init} - Init START")
            lines.append(f"{who}NET/IB : Using [0]mlx5_{rank}:1/IB [RO]; OOB eth0:10.0.0.{rank}<0>")
            for channel in range(6):
                peer = (rank + 1) % 4
                via = (
                    draw.choice(["NET/IB/0/GDRDMA", "NET/IB/0", "NET/Socket/1"]) if peer % 2 == 0 else "P2P/CUMEM"
                )
                side = " [send]" if via.startswith("NET") else ""
                lines.append(
                    f"{who}Channel {channel:02d}/0 : {rank}[{rank % 2}] -> {peer}[{peer % 2}]{side} via {via}"
                )
                lines.append(f"{who}AllReduce: opCount {channel:x} count 7 comm 0x{comm}{rank}")
            lines.append(f"{who}{init} - Init COMPLETE")
    return lines


def answer(reader: LogReader) -> dict[str, Any]:
    shown = reader.verdict().as_json()
    # Another program's line with the word NCCL in it counts as NCCL's where it is looked at.
    del shown["read"]["nccl_lines"]
    return shown


def unfiltered(monkeypatch: pytest.MonkeyPatch, data: bytes) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        patch.setattr(Prefilter, "sift", lambda self, block: iter([block.split(b"\n")]))
        reader = LogReader()
        reader.feed(data)
        return answer(reader)


WRAPPINGS = {
    "plain": lambda number, line: line,
    "label": lambda number, line: f"{number % 4}: {line}",
    "glued label": lambda number, line: f"[rank{number % 4}]:{line}",
    "time": lambda number, line: f"2025-03-04T05:06:07.{number:06d}Z stderr F {line}",
    "docker": lambda number, line: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": str(number)}
    ).replace('{"log": ', '{"log":'),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("seed", range(12))
def test_a_mixed_log_says_the_same_with_and_without_the_prefilter(
    wrapping: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    lines = []
    for line in set_up(draw):
        lines += draw.choices(TRAINING, k=draw.choice([0, 0, 1, 3]))
        if draw.random() < 0.02:
            line = line[draw.randrange(len(line)) :]  # its beginning is lost
        lines.append(line)
    data = ("\n".join(WRAPPINGS[wrapping](n, line) for n, line in enumerate(lines)) + "\n").encode()
    reader = LogReader()
    for start in range(0, len(data), 1000):
        reader.feed(data[start : start + 1000])
    filtered = answer(reader)
    assert filtered == unfiltered(monkeypatch, data)
    assert filtered["communicators"]


@given(st.lists(st.sampled_from(TRAINING), max_size=60))
def test_training_lines_alone_are_all_dismissed_but_those_that_start_like_messages(lines: list[str]) -> None:
    prefilter = Prefilter({}, set(), frozenset([b"Chan"]))
    looked_at = [line for part in prefilter.sift("\n".join(lines).encode()) for line in part]
    assert looked_at == [line.encode() for line in lines if line.startswith("Channel ")]
    assert prefilter.dismissed == 0


def test_a_known_connection_is_dismissed_on_every_channel_and_a_new_communicator_brings_it_back() -> None:
    reader = LogReader()
    who = b"a:1:2 [0] NCCL INFO "
    init = who + b"comm 0x%d rank 0 nranks 2 cudaDev 0 busId 1a commId 0x%d - Init START\n"
    edge = who + b"Channel %02d/0 : 0[0] -> 1[1] via P2P/IPC\n"
    for comm in (1, 2):
        reader.feed(init % (comm, comm) + b"".join(edge % channel for channel in range(16)))
    assert [len(c.pairs) for c in reader.verdict().communicators] == [1, 1]
    assert (reader.lines, reader.nccl_lines) == (34, 34)


def test_numbers_of_any_length_end_in_an_answer(tmp_path: Path) -> None:
    digits = "9" * 5000
    forms = [
        f"node0:1:2 [{digits}] NCCL INFO Using network IB",
        f"node0:{digits}:2 [0] NCCL INFO Using network IB",
        f"node0:1:2 [0] NCCL INFO Channel {digits}/0 : 0[0] -> 1[0] [send] via NET/IB/0",
        f"node0:1:2 [0] NCCL INFO Channel 00/0 : {digits}[0] -> 1[0] [send] via NET/IB/0",
        f"node0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/{digits}",
        f"node0:1:2 [0] NCCL INFO comm 0xa rank {digits} nranks 2 cudaDev 0 busId 1a commId 0x1 - Init START",
        f"node0:1:2 [0] NCCL INFO NET/IB : Using [{digits}]mlx5_0:1/IB",
        f"node0:1:2 [0] NCCL INFO NET/Socket : Using [{digits}]ib0:1.1.1.1<0>",
        f"Channel 00/0 : {digits}[0] -> 1[0] [send] via NET/IB/0",
        f"node0:1:2 [0] NCCL WARN Call failed with error {digits}",
    ]
    path = tmp_path / "log"
    for form in forms:
        for end in ("\n", ""):
            path.write_text(form + end)
            assert digits not in json.dumps(read_logs([path]).as_json())
    assert len(forms) == 10
