"""A collective's arguments, as PyTorch attaches them to its kernel or to the host event that launched it."""

from __future__ import annotations

from typing import Any

import msgspec

from wirecost.trace.diagnostic_counts import DiagnosticCounts
from wirecost.trace.operations import UNKNOWN, operation, total_bytes
from wirecost.trace.recorded import UNKNOWN_GROUP, Call

_MOST_RANKS = 10_000_000
_MOST_ELEMENTS = 2**48  # of a message; a larger argument is broken


class Described(msgspec.Struct, gc=False, frozen=True):
    """Arguments of a communication kernel (PyTorch, torch/csrc/distributed/c10d/ParamCommsUtils.hpp)."""

    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_size: Any = msgspec.field(default=None, name="Group size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    description: Any = msgspec.field(default=None, name="Process Group Description")
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    destination: Any = msgspec.field(default=None, name="Dst Rank")


def _members(value: object) -> str:
    """Returns a group's ranks as text, whether the trace writes a list of numbers or its text; empty where
    neither."""
    if isinstance(value, list) and all(type(rank) is int for rank in value):
        return str(value)
    return value if isinstance(value, str) else ""


class Arguments:
    """Reads arguments. Unreadable ones are counted and taken as unknown."""

    def __init__(self, diagnostics: DiagnosticCounts) -> None:
        self._diagnostics = diagnostics
        self._decode = msgspec.json.Decoder(Described).decode

    def call(self, args: Described | bytes, name: str) -> Call:
        """Returns the call that a kernel's arguments and name describe."""
        decoded = self._args(args) if isinstance(args, bytes) else args
        call = self._described(decoded) if decoded is not None else None
        if call is None:
            return Call(op=operation(name))
        if call.op == UNKNOWN:
            call.op = operation(name)
            call.op_source = "name"
        return call

    def description(self, raw: bytes) -> Call | None:
        """Returns the call that a host event's arguments describe; None if they describe none."""
        try:
            args = self._decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return self._described(args)

    def _args(self, raw: bytes) -> Described | None:
        if not raw:
            return None
        try:
            return self._decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            self._diagnostics.add("bad_argument")
            return None

    def _described(self, args: Described) -> Call | None:
        """Returns the call that arguments describe; None if they describe none."""
        if not isinstance(args.collective, str) or not args.collective:
            return None
        size, count_in, count_out = (
            self._count(v) for v in (args.group_size, args.elements_in, args.elements_out)
        )
        if size == 0:
            size = None
        op = operation(args.collective)
        dtype = args.dtype if isinstance(args.dtype, str) else None
        total = total_bytes(op, count_in, count_out, dtype)
        sequence = self._count(args.sequence)
        group = args.group if isinstance(args.group, str) and args.group else UNKNOWN_GROUP
        if isinstance(args.description, str) and args.description not in ("", "undefined", group):
            group = f"{group} ({args.description})"
        peers = self._peers(op, args)
        members, waits = _members(args.members), args.collective == "wait"
        return Call(op, group, members, size, total, dtype, sequence, "args", waits, peers)

    def _peers(self, op: str, args: Described) -> tuple[tuple[int, int], ...]:
        """Returns the global ranks (source, destination) of a send or receive; -1 is the rank itself.

        PyTorch writes only the other end: `Dst Rank` of a send and `Src Rank` of a receive.
        """
        source, destination = args.source, args.destination
        if op not in ("send", "recv") or (source is None and destination is None):
            return ()
        ends = [self._rank(end) for end in (source, destination)]
        return () if None in ends else ((ends[0], ends[1]),)  # pyright: ignore[reportReturnType]

    @staticmethod
    def _rank(value: object) -> int | None:
        """Returns a rank from a number or text; -1 if none is written, None if it is invalid."""
        if value is None:
            return -1
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        return value if type(value) is int and 0 <= value < _MOST_RANKS else None

    def _count(self, value: object) -> int | None:
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_ELEMENTS:
            return value
        self._diagnostics.add("bad_argument")
        return None
