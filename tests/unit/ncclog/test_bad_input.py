"""Logs that say little, nothing, or nonsense: an answer or "unknown because ...", never a guess."""

from __future__ import annotations

import gzip
import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.errors import WirecostError
from wirecost.ncclog import LogReader, Transport, read_logs, read_text

EDGE = "alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "empty"),
        ("step 1 loss 2.3\nstep 2 loss 2.2\n", "none of 2 lines is NCCL's"),
        ("\0\1\2\3" * 5000, "binary"),
        ("NCCL version 2.28.9+cuda12.8\n", "NCCL_DEBUG=INFO"),
        ("alpha:1:2 [0] NCCL INFO Using network IB\n", "network IB was selected"),
        ("alpha:1:2 [0] NCCL INFO Assigned NET plugin AWS Libfabric to comm\n", "AWS Libfabric was selected"),
        ("alpha:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n", "candidates"),
        (
            "a:1:2 [0] NCCL INFO Channel 00/02 :  0  1\na:1:2 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1\n",
            "no connection line",
        ),
        ("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Warp/0\n", "NET/Warp"),
        ("a:1:2 [0] NCCL INFO Using network IB\na:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [se", "cut short"),
    ],
)
def test_unknown_with_a_reason(log: str, words: str) -> None:
    verdict = read_text(log)
    assert verdict.verdict is Transport.UNKNOWN
    assert verdict.reason is not None
    assert verdict.reason.startswith("unknown because ") and words in verdict.reason and "\n" not in verdict.reason
    assert verdict.as_json()["reason"] == verdict.reason


def test_an_answer_has_no_reason() -> None:
    assert "reason" not in read_text(EDGE).as_json()


@pytest.mark.parametrize(
    "line",
    [
        "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory",
        "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
        "DMA-BUF is available on GPU device 0",
        "Connected all rings, use ring PXN 0 GDR 1",
    ],
)
def test_noise_changes_nothing(line: str) -> None:
    plain = read_text(EDGE)
    noisy = read_text(f"alpha:1:2 [0] NCCL INFO {line}\n" + EDGE)
    assert (noisy.verdict, noisy.diagnostics) == (plain.verdict, plain.diagnostics)


@pytest.mark.parametrize("cut", range(1, len(EDGE)))
def test_cut_anywhere_never_claims_more(cut: int) -> None:
    """A log that breaks off inside its only connection line. Up to the plugin's name nothing is proved; from the
    device on RDMA is, and only the whole line proves GPUDirect."""
    verdict = read_text(EDGE[:cut])
    if cut <= EDGE.index("/0/GDRDMA") + 1:
        assert verdict.verdict is Transport.UNKNOWN
    elif cut < EDGE.index("/GDRDMA") + len("/GDRDMA"):
        assert verdict.verdict in (Transport.UNKNOWN, Transport.RDMA)
    else:
        assert verdict.verdict is Transport.RDMA_GDR


def test_cut_line_does_not_deny_gpudirect_that_others_show() -> None:
    cut = EDGE.replace("Channel 00", "Channel 01")
    verdict = read_text(EDGE + cut[: cut.index("/GDRDMA")])
    assert verdict.verdict is Transport.RDMA_GDR


def test_lines_run_together() -> None:
    """Two processes wrote into one line: the first message may have lost its end."""
    first = EDGE.replace("/GDRDMA\n", "")
    second = "beta:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\n"
    known = "beta:1:2 [0] NCCL INFO Using network IB\n"
    verdict = read_text(known + first + second)
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.diagnostic("lines_cut") is not None
    (pair,) = verdict.communicators[0].pairs
    assert pair.hosts == ("alpha", "beta")
    # Where nothing else names beta, "0beta" could be a device 0 and a host beta, or a host 0beta: not known.
    (pair,) = read_text(first + second).communicators[0].pairs
    assert pair.hosts == (None, "alpha")


def test_a_line_cut_in_the_middle_is_counted() -> None:
    verdict = read_text(EDGE + "alpha:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NE\nT/IB/0\n")
    assert verdict.verdict is Transport.RDMA_GDR
    reported = verdict.diagnostic("lines_cut")
    assert reported is not None and reported.message.startswith("1 lines")


def test_truncated_gzip(tmp_path) -> None:
    whole = gzip.compress((EDGE + "".join(f"step {i} loss {i * 7919 % 101}\n" for i in range(50_000))).encode())
    path = tmp_path / "log.gz"
    path.write_bytes(whole[: len(whole) // 2])
    verdict = read_logs([path])
    assert verdict.verdict is Transport.RDMA_GDR
    assert verdict.diagnostic("log_truncated") is not None
    path.write_bytes(b"\x1f\x8b" + b"garbage" * 100)
    assert read_logs([path]).verdict is Transport.UNKNOWN


def test_compression_is_told_by_content(tmp_path) -> None:
    import zstandard

    for name, data in (
        ("a.txt", 2 * gzip.compress(EDGE.encode(), mtime=0)),
        ("b.log", zstandard.compress(EDGE.encode())),
        ("c.gz", EDGE.encode()),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert read_logs([path]).verdict is Transport.RDMA_GDR, name
    assert read_logs([tmp_path]).verdict is Transport.RDMA_GDR


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(EDGE.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert read_logs(["-"]).verdict is Transport.RDMA_GDR


def test_missing_file_is_one_clear_error(tmp_path) -> None:
    with pytest.raises(WirecostError, match=r"can't read log '.*nothing\.log': No such file"):
        read_logs([tmp_path / "nothing.log"])
    with pytest.raises(WirecostError, match="no log given"):
        read_logs([])


def test_hostile_names_reach_no_terminal() -> None:
    verdict = read_text(
        "ev\x1b]0;il\x07:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/\x1b[31mX\x07/0\n"
    )
    shown = str(verdict.as_json())
    assert "\x1b" not in shown and "\\x1b" not in shown and "\\x07" not in shown


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    verdict = read_text(data)
    assert (verdict.verdict is Transport.UNKNOWN) == (verdict.reason is not None)


_PIECES = [
    b"alpha:1:2 [0] NCCL INFO ", b"beta:3:4 [1] NCCL INFO ", b"Channel 00/0 : ", b"Ring 01 : ", b"0[0] -> 1[1] ",
    b"1 -> 0 ", b"[send] ", b"[receive] ", b"via NET/IB/0", b"/GDRDMA", b"via P2P/IPC", b"via SHM/direct", b"\n",
    b"comm 0xa rank 0 nranks 2 cudaDev 0 busId 1a commId 0x1 - Init START",
    b"comm 0xa rank 1 nranks 1 cudaDev 0 - Init COMPLETE",
    b"comm 0xa rank 0 nRanks 2 nNodes 1 localRanks 2", b"Using network ", b"IB",
    b"NET/Socket : Using [0]ib0:1.1.1.1<0>",
    b"NCCL_HOSTID set by environment to ", b"Selected provider is tcp", b"\x1b[0m", b"\r", b"\0",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=40), st.integers(1, 50))
def test_any_arrangement_of_its_words_in_any_chunks(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    reader = LogReader()
    for i in range(0, len(data), size):
        reader.feed(data[i : i + size])
    verdict = reader.verdict()
    assert (verdict.verdict is Transport.UNKNOWN) == (verdict.reason is not None)
    assert all(w.code.replace("_", "").isalnum() and w.message for w in verdict.diagnostics)


def test_memory_stays_bounded_without_line_ends() -> None:
    reader = LogReader()
    for _ in range(40):
        reader.feed(b"x" * 100_000)
        assert len(reader._rest) <= 65_536
    assert reader.verdict().verdict is Transport.UNKNOWN


def test_more_edges_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirecost.ncclog.state.MAX_EDGES", 10)

    def line(peer: int, via: str) -> str:
        return f"alpha:1:2 [0] NCCL INFO Channel 00/1 : 0[0] -> {peer}[0] [send] via {via}\n"

    log = "".join(line(peer, "NET/IB/0/GDRDMA") for peer in range(1, 50))
    verdict = read_text(log)
    assert verdict.verdict is Transport.RDMA_GDR
    reported = verdict.diagnostic("edges_left_out")
    assert reported is not None and reported.message.startswith("38 ")
    assert sum(p.edges for c in verdict.communicators for p in c.pairs) == 11
    # One of another kind counts, however late it comes.
    assert read_text(log + line(60, "NET/Socket/0")).verdict is Transport.MIXED
