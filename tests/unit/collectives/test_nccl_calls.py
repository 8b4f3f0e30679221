"""What is asked of NCCL, with a stand-in for the library: arguments in nccl.h's order, and prepared calls."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from wirecost.collectives.backends import nccl  # noqa: E402
from wirecost.collectives.operations import COLLECTIVES  # noqa: E402
from wirecost.collectives.timing import one_by_one  # noqa: E402

COMM, STREAM, FLOAT, SUM = 77, 123, 7, 0


def value(argument: Any) -> Any:
    """What C would see: of a simple ctypes object, or of one that `from_param` converted."""
    if found := re.fullmatch(r"<cparam '.' \((.+)\)>", repr(argument)):
        return int(found[1], 0)
    return getattr(argument, "value", argument)


class Function:
    argtypes: Any = None
    restype: Any = None

    def __init__(self, library: Library, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *arguments: Any) -> Any:
        assert len(arguments) == len(getattr(self.library, self.name).argtypes)
        if self.name == "ncclGetErrorString":
            return b"unhandled system error"
        self.library.calls.append((self.name, *map(value, arguments)))
        return self.library.code


class Library:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.code = 0

    def __getattr__(self, name: str) -> Function:
        function = Function(self, name)
        setattr(self, name, function)
        return function

    def __getitem__(self, name: str) -> Function:
        return Function(self, name)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library, zeros = Library(), torch.zeros
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    stream = SimpleNamespace(cuda_stream=STREAM, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch, "zeros", lambda *a, device=None, **k: zeros(*a, **k))
    return library


@pytest.fixture
def comm(library: Library) -> nccl.NcclCommunicator:
    comm = nccl.NcclCommunicator(0, 2, lambda own: own or b"", FLOAT, "sum")
    assert [c[0] for c in library.calls] == ["ncclGetUniqueId", "ncclCommInitRank"]
    library.calls.clear()
    comm._comm = COMM
    return comm


def test_arguments_in_the_order_of_nccl_h(library: Library, comm: nccl.NcclCommunicator) -> None:
    send, receive = torch.zeros(8), torch.zeros(8)
    s, r, half = send.data_ptr(), receive.data_ptr(), send.data_ptr() + 16
    end = (COMM, STREAM)
    expected: dict[str, list[tuple[Any, ...]]] = {
        "all_reduce": [("ncclAllReduce", s, r, 8, FLOAT, SUM, *end)],
        "all_gather": [("ncclAllGather", s, r, 8, FLOAT, *end)],
        "reduce_scatter": [("ncclReduceScatter", s, r, 8, FLOAT, SUM, *end)],
        "broadcast": [("ncclBroadcast", s, r, 8, FLOAT, 0, *end)],
        "reduce": [("ncclReduce", s, r, 8, FLOAT, SUM, 0, *end)],
        "all_to_all": [
            ("ncclGroupStart",),
            ("ncclSend", s, 4, FLOAT, 0, *end),
            ("ncclRecv", r, 4, FLOAT, 0, *end),
            ("ncclSend", half, 4, FLOAT, 1, *end),
            ("ncclRecv", r + 16, 4, FLOAT, 1, *end),
            ("ncclGroupEnd",),
        ],
        "send_recv": [("ncclSend", s, 8, FLOAT, 1, *end), ("ncclRecv", r, 8, FLOAT, 1, *end)],
        "send_recv_bidirectional": [
            ("ncclGroupStart",),
            ("ncclSend", s, 8, FLOAT, 1, *end),
            ("ncclRecv", r, 8, FLOAT, 1, *end),
            ("ncclGroupEnd",),
        ],
    }
    assert expected.keys() == COLLECTIVES.keys()
    for name, calls in expected.items():
        run = comm.recorded(lambda entry=COLLECTIVES[name]: entry.run(comm, receive, send))
        assert library.calls == [], "recording issues nothing"
        run()
        run()
        assert library.calls == [*calls, *calls]
        library.calls.clear()


def test_a_failed_call_is_an_error(library: Library, comm: nccl.NcclCommunicator) -> None:
    run = comm.recorded(lambda: comm.all_reduce(torch.zeros(1), torch.zeros(1)))
    library.code = 2
    with pytest.raises(nccl.NcclError, match="unhandled system error"):
        run()


def test_many_calls_are_as_many_and_any_that_fails_is_an_error(
    library: Library, comm: nccl.NcclCommunicator
) -> None:
    one, zeros = torch.zeros(1), torch.zeros(2)
    run = one_by_one(comm.recorded(lambda: comm.all_reduce(one, one)), 3)
    run()
    expected = ("ncclAllReduce", one.data_ptr(), one.data_ptr(), 1, FLOAT, SUM, COMM, STREAM)
    assert library.calls == [expected] * 3
    library.code = 2
    with pytest.raises(nccl.NcclError, match="unhandled system error"):
        run()
    library.code = 0
    library.calls.clear()
    one_by_one(comm.recorded(lambda: comm.exchange(zeros, zeros, to=1, source=1)), 2)()
    assert [c[0] for c in library.calls] == 2 * ["ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"]
