"""Reads log text of any size as a stream: bytes in, a verdict out.

Nearly all of a big log is either not NCCL's or repeats a connection for another channel, so each line gets the
cheapest test that can dismiss it (a substring search, a set lookup) and only what is new is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from wirecost.ncclog.facts import take_fact
from wirecost.ncclog.grammar import (
    Edge,
    parse_edge,
    parse_init,
    parse_nodes,
    parse_prefix,
)
from wirecost.ncclog.prefilter import Prefilter, last_two_words, without_long_numbers
from wirecost.ncclog.result import Verdict
from wirecost.ncclog.state import LogState, Thread

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LONGEST_LINE_BYTES = 1 << 16  # NCCL's own buffer is 4 KiB; longer "lines" are not text
_MOST_KEYS = 100_000
_MOST_SEEN = 50_000
_MOST_FACTS = 500  # a thread; bounds that only a hostile log reaches
_INFO = b"NCCL INFO "
# First four bytes of the messages that are read, besides the two that the fast path takes.
_MESSAGES = frozenset(
    (
        b"Chan", b"Ring", b"Coll", b"comm", b"nccl", b"[Ran", b"Usin", b"NET/", b"Assi", b"NCCL", b"RCCL", b"GPU ",
        b"Fail", b"P2P ",
    )
)  # fmt: skip
# Those of them that are true once and for all: the same words again say nothing new.
_FACTS = frozenset((b"NET/", b"NCCL", b"RCCL", b"GPU ", b"Fail", b"P2P "))
# Where a pasted fragment may start when even "NCCL INFO" was cut off.
_FRAGMENTS = frozenset((b"Chan", b"Ring", b"Coll", b"comm", b"nccl", b"Usin", b"NET/", b"GPU ", b"RCCL"))
# A block of text with none of these says nothing about transports.
_TELLING = (b"CCL ", b" via ", b"NET/", b"Using ", b"Init ", b"GPU Direct")
_DOCKER = b'{"log":"'  # docker's json-file driver wraps each line
_PREFIXED = re.compile(rb"([^\s:]+):\d+:\d+ \[-?\d+\] NCCL (?:INFO|WARN) ")


class LogReader:
    """Feed it bytes of logs, then ask for the verdict.

        reader = LogReader()
        for chunk in stream:
            reader.feed(chunk)
        verdict = reader.verdict()

    Call `end_source` between files: no line continues over it, and without line prefixes each source is its own.
    """

    def __init__(self) -> None:
        self.state = LogState()
        self.sources = 0
        self.bytes = 0
        self.lines = 0
        self.nccl_lines = 0
        self.cut_lines = 0
        self.binary_bytes = 0
        self.unreadable: list[str] = []  # sources that ended before their end (a cut .gz)
        self.skipped: list[str] = []
        self._threads: dict[bytes, Thread] = {}  # by "host:pid:tid [device]", as it stands in the log
        self._hosts: set[bytes] = set()
        self._host_lengths: set[int] = set()
        self._anonymous: Thread | None = None
        self._rest = b""
        self._in_source = False
        self._parsed: dict[bytes, Edge | None] = {}
        self._left_out: set[bytes] = set()  # keys of connection lines that came when there were enough edges
        self._prefilter = Prefilter(self._threads, self._left_out, _MESSAGES)

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the current source, cut anywhere."""
        self._begin_source()
        self.bytes += len(chunk)
        if b"\0" in chunk:  # much faster than counting none
            self.binary_bytes += chunk.count(b"\0")
        data = self._rest + chunk
        if b"\x1b" in data:
            data = _ANSI.sub(b"", data)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # Windows' line end; a progress bar's line
        body, newline, self._rest = data.rpartition(b"\n")
        if newline:
            if any(word in body for word in _TELLING):
                self._sift(body)
            else:
                self.lines += body.count(b"\n") + 1
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._rest = self._rest[-_LONGEST_LINE_BYTES // 2 :]

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Whole lines, without their line ends."""
        for line in lines:
            self.feed(line + b"\n")

    def end_source(self) -> None:
        """The current file or stream is over; its last line may lack its end."""
        if self._rest:
            self.lines += 1
            self._slow(without_long_numbers(self._rest), cut=True)
        self._rest = b""
        self._in_source = False
        self._anonymous = None

    def verdict(self) -> Verdict:
        """Judges everything that was fed. The reader is used up by it."""
        from wirecost.ncclog.judge import judge

        self.end_source()
        self.state.finish()
        return judge(self)

    def _begin_source(self) -> None:
        if not self._in_source:
            self._in_source = True
            self.sources += 1

    def _sift(self, body: bytes) -> None:
        """Takes those of the whole lines in `body` that may say something new."""
        taken, dismissed = 0, self._prefilter.dismissed
        for lines in self._prefilter.sift(body):
            taken += len(lines)
            self._take(lines)
        self.lines += body.count(b"\n") + 1 - taken
        self.nccl_lines += self._prefilter.dismissed - dismissed

    def _take(self, lines: list[bytes]) -> None:
        threads = self._threads
        others = 0
        # Of the last connection line: all up to its channel's two digits, where its text goes on behind them, and
        # what its thread has said. The same connection on another channel says nothing new, and threads mostly
        # print many lines in a row.
        head, rest_at, seen = b"\n", 0, set[bytes]()  # no line holds a line end
        for line in lines:
            if line.startswith(head) and line[rest_at:] in seen:
                continue
            at = line.find(b" NCCL INFO ")
            if at >= 0:
                word = line[at + 11 : at + 15]
                if word in (b"Chan", b"Ring"):
                    thread = threads.get(line[:at])
                    if thread is None:  # a launcher's prefix or a time stamp comes first
                        thread = threads.get(last_two_words(line[:at]))
                    rest_at = at + (21 if word == b"Chan" else 18)  # behind "Channel NN" or "Ring NN"
                    rest = line[rest_at:]
                    if thread is None or b" NCCL " in rest:
                        head = b"\n"
                        self._slow(line)
                    else:
                        head, seen = line[: rest_at - 2], self._left_out or thread.seen
                        if rest not in seen and rest not in thread.seen:
                            self._connection(thread, line[at + 11 :], cut=False)
                elif word in _FACTS:
                    thread = threads.get(line[:at])
                    if thread is None or line[at + 11 :] not in thread.facts_seen:
                        self._slow(line)
                elif word in _MESSAGES and (word != b"nccl" or line[at + 15 : at + 19] == b"Comm"):
                    head = b"\n"  # an Init line changes whom a connection belongs to
                    thread = threads.get(line[:at]) if word == b"nccl" and line.count(b" NCCL ") == 1 else None
                    if thread is not None and (init := _cached_init(line[at + 11 :])) is not None:
                        self.state.add_init(thread, init)
                    else:
                        self._slow(line)
            elif b"CCL " in line:
                head = b"\n"
                self._slow(line)
            else:
                others += 1
                if line[:4] in _FRAGMENTS or b" via " in line:
                    self._slow(line)
        self.lines += len(lines)
        self.nccl_lines += len(lines) - others

    def _slow(self, line: bytes, *, cut: bool = False) -> None:
        """A line that may hold something new. Lines of several processes can run together in one."""
        if line.startswith(_DOCKER):
            line = line[len(_DOCKER) :].partition(b'\\n"')[0].partition(b'","stream"')[0]
        if line.count(b" NCCL ") > 1 and len(starts := self._starts(line)) > 1:
            self.cut_lines += 1
            bounds = [0, *starts[1:], len(line)]
            for i in range(len(bounds) - 1):
                self._message(line[bounds[i] : bounds[i + 1]], cut=cut or i < len(bounds) - 2)
        else:
            self._message(line, cut=cut)

    def _starts(self, line: bytes) -> list[int]:
        """Where each message in a line starts. A host name glued to the message before it ("NET/IB/0beta") is
        found where the log names that host elsewhere too; else the host isn't known."""
        starts: list[int] = []
        for m in _PREFIXED.finditer(line):
            known = [n for n in self._host_lengths if m[1][-n:] in self._hosts]
            starts.append(m.end(1) - max(known, default=0) if starts else m.start(1))
        return starts

    def _message(self, line: bytes, *, cut: bool) -> None:
        head, info, tail = line.partition(_INFO)
        if not info:
            head, info, tail = line.partition(b"NCCL WARN ")
        if not info:
            head, tail = b"", self._fragment(line)
        head = head.rstrip()
        thread = self._thread(head)
        start = tail[:4]
        if start in (b"Chan", b"Ring", b"Coll"):
            self._connection(thread, tail, cut=cut)
        elif start in (b"comm", b"nccl", b"[Ran"):
            if (init := _cached_init(tail)) is not None:
                self.state.add_init(thread, init)
            elif (nodes := parse_nodes(tail)) is not None:
                for member in thread.process.memberships:
                    if member.comm == nodes.comm and member.rank == nodes.rank:
                        member.nodes = nodes.nodes
        elif tail not in thread.facts_seen:
            # A selection belongs to the communicator of the moment; anything else is true once and for all.
            if len(thread.facts_seen) < _MOST_FACTS and start not in (b"Usin", b"Assi"):
                thread.facts_seen.add(tail)
            take_fact(self.state, thread, tail)

    @staticmethod
    def _fragment(line: bytes) -> bytes:
        """The message of a line without `NCCL INFO`: from the first word that NCCL starts a message with."""
        if line[:4] in _FRAGMENTS:
            return line
        for word in (b"Channel ", b"Ring ", b"CollNet "):
            if (at := line.find(word)) >= 0:
                return line[at:]
        return line

    def _connection(self, thread: Thread, tail: bytes, *, cut: bool) -> None:
        key = tail[10:] if tail[:8] == b"Channel " else tail[7:]  # behind "Channel NN", "Ring NN" or "CollNet"
        if not cut and key in thread.seen:
            return
        if self.state.is_full_for(tail):
            if len(self._left_out) >= _MOST_SEEN:
                self._left_out.clear()
            self._left_out.add(key)
            return
        if not cut and tail in self._parsed:
            edge = self._parsed[tail]
        else:
            edge = parse_edge(tail, cut=cut)
            if not cut:
                if len(self._parsed) >= _MOST_SEEN:
                    self._parsed.clear()
                self._parsed[tail] = edge
        if edge is not None:
            # The channel number has two digits up to 99 ("%02d"), so that the key is the same for all of those.
            if not cut and self.state.edges_left_out == 0:
                thread.seen.add(key)
            self.state.add_edge(thread, edge)
        elif tail.count(b" -> ") == 1:  # "Ring 00 : 7 -> 0 -> 1" is topology, not a connection
            self.cut_lines += 1
        elif not cut and len(thread.seen) < _MOST_SEEN:
            thread.seen.add(key)  # ring order, or topology

    def _thread(self, head: bytes) -> Thread:
        key = last_two_words(head)
        thread = self._threads.get(key)
        if thread is not None:
            return thread
        prefix = parse_prefix(head)
        if prefix is None:
            if self._anonymous is None:
                process = self.state.process(None, None, self.sources)
                self._anonymous = Thread(process, None, anonymous=True)
            return self._anonymous
        process = self.state.process(prefix.host, prefix.pid, self.sources)
        if not key.endswith(b"]"):
            return Thread(
                process, prefix.device
            )  # a WARN line's head ends in file:line; it carries no connections
        if prefix.host is not None and len(self._hosts) < 10_000:
            self._hosts.add(prefix.host.encode())
            self._host_lengths.add(len(prefix.host.encode()))
        # A launcher's prefix without a space ("[rank0]:host:pid:tid") makes another key of the same thread.
        place = (prefix.host, prefix.pid, prefix.tid, prefix.device)
        thread = next((t for t in process.threads if t.place == place), None)
        if thread is None:
            thread = Thread(process, prefix.device, place=place)
            process.threads.append(thread)
        if len(self._threads) < _MOST_KEYS:
            self._threads[key] = thread
        return thread


_cached_init = lru_cache(maxsize=20_000)(parse_init)
