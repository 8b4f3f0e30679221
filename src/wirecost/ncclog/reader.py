"""Reads log text of any size as a stream and returns a verdict.

Almost all lines of a large log are either not NCCL's or repeat a connection for another channel. Each line
therefore gets the cheapest test that can discard it (a substring search, a set look-up), and only new information
is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from wirecost.ncclog.facts import take_abort, take_fact
from wirecost.ncclog.grammar import (
    Edge,
    Piece,
    messages,
    names_network,
    parse_edge,
    parse_init,
    parse_nodes,
    parse_prefix,
    text,
)
from wirecost.ncclog.judge import judge
from wirecost.ncclog.prefilter import Prefilter, last_two_words, without_long_numbers
from wirecost.ncclog.read_log import ReadLog
from wirecost.ncclog.result import Verdict
from wirecost.ncclog.state import Thread
from wirecost.ncclog.wrapping import Decoder, peel, plain_record, without_colours

_LONGEST_LINE_BYTES = 1 << 16  # NCCL's own buffer is 4 KiB; longer "lines" are not text
_LONGEST_KEPT_BYTES = 400
_MOST_KEYS = 100_000
_MOST_SEEN = 50_000
_MOST_FACTS = 500  # a thread; bounds that only a hostile log reaches
_INFO, _WARN = b"NCCL INFO ", b"NCCL WARN "
# First four bytes of the parsed messages, besides the two that the fast path handles.
_MESSAGES = frozenset(
    (
        b"Chan", b"Ring", b"Coll", b"comm", b"nccl", b"[Ran", b"Usin", b"NET/", b"Assi", b"NCCL", b"RCCL", b"GPU ",
        b"Fail", b"P2P ", b"Coun", b"Comm", b"tran", b"init", b"boot",
        b"grou",
    )
)  # fmt: skip
# Messages that hold for the whole log, so that a repetition contains nothing new.
_FACTS = frozenset(
    (b"NET/", b"NCCL", b"RCCL", b"GPU ", b"Fail", b"P2P ", b"Coun", b"Comm", b"tran", b"init", b"boot", b"grou")
)
# Possible starts of a pasted fragment that has lost even "NCCL INFO".
_FRAGMENTS = frozenset((b"Chan", b"Ring", b"Coll", b"comm", b"nccl", b"Usin", b"NET/", b"GPU ", b"RCCL"))
# A block of text without any of these contains nothing about transports.
_TELLING = (b"CCL", b" via ", b"NET/", b"Using ", b"Init ", b"GPU Direct")


class LogReader(ReadLog):
    """Accepts the bytes of logs and judges them.

        reader = LogReader()
        for chunk in stream:
            reader.feed(chunk)
        verdict = reader.verdict()

    Call `end_source` between files: no line continues beyond it, and sources without line prefixes are kept apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: dict[bytes, Thread] = {}  # by "host:pid:tid [device]" as in the log
        self._hosts: set[bytes] = set()
        self._host_lengths: set[int] = set()
        self._anonymous: Thread | None = None
        self._rest, self._torn = b"", Piece(b"")
        self._decoder = Decoder()
        self._in_source = False
        self._parsed: dict[bytes, tuple[Edge, int] | None] = {}
        self._torn = Piece(b"")  # a connection line that another message interrupts; its rest may follow
        self._decoder = Decoder()
        # Keys of the connection lines that came after the limit of edges was reached.
        self._left_out: set[bytes] = set()
        self._prefilter = Prefilter(self._threads, self._left_out, _MESSAGES)
        self._suffix = b""  # the text that a wrapper appended to the last connection line

    def feed(self, chunk: bytes) -> None:
        """Reads the next bytes of the current source, which may be split anywhere."""
        self._begin_source()
        self.bytes += len(chunk)
        chunk = self._decoder.feed(chunk)
        if b"\0" in chunk:  # much faster than a count of 0
            self.binary_bytes += chunk.count(b"\0")
        data = without_colours(self._rest + chunk)
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
        """Reads whole lines without their line ends."""
        for line in lines:
            self.feed(line + b"\n")

    def end_source(self) -> None:
        """Ends the current file or stream; its last line may lack a line end."""
        self._rest += self._decoder.end()
        if self._rest:
            self.lines += 1
            self._slow(without_long_numbers(self._rest), cut=True)
        self._rest, self._torn = b"", Piece(b"")
        self._decoder = Decoder()
        self._in_source = False
        self._anonymous = None

    def verdict(self) -> Verdict:
        """Returns the verdict on everything that was read. The reader can't be used afterwards."""
        self.end_source()
        self.state.finish()
        return judge(self)

    def _begin_source(self) -> None:
        if not self._in_source:
            self._in_source = True
            self.sources += 1

    def _sift(self, body: bytes) -> None:
        """Parses the whole lines in `body` that may contain something new."""
        handled, dismissed = 0, self._prefilter.dismissed
        for lines in self._prefilter.sift(body):
            handled += len(lines)
            self._take(lines)
        self.lines += body.count(b"\n") + 1 - handled
        self.nccl_lines += self._prefilter.dismissed - dismissed

    def _take(self, lines: list[bytes]) -> None:
        threads = self._threads
        others = 0
        # Of the last connection line: all up to its channel's two digits, where its text goes on behind them, and
        # what its thread has said. The same connection on another channel says nothing new, and threads mostly
        # print many lines in a row.
        head, rest_at, known_lines = b"\n", 0, set[bytes]()  # no line holds a line end
        for raw in lines:
            if raw.startswith(head) and raw[rest_at:] in known_lines:
                continue
            bare, line, at = self._unwrapped(raw)
            if line is not raw and any(x.startswith(head) and x[rest_at:] in known_lines for x in (bare, line)):
                continue
            if at < 0:
                others += b"CCL " not in line
                head = self._take_other(line, head)
                continue
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
                    continue
                head, known_lines = line[: rest_at - 2], self._left_out or thread.known_lines
                if rest not in known_lines and rest not in thread.known_lines:
                    self._new_connection(thread, line, at, rest)
            elif word in _FACTS or word[:1] == b"/":  # RCCL gives whole paths
                thread = threads.get(line[:at])
                if thread is None or line[at + 11 :] not in thread.facts_seen:
                    self._slow(line)
            elif word in _MESSAGES and (word != b"nccl" or line[at + 15 : at + 19] == b"Comm"):
                head = b"\n"  # an Init line changes whom a connection belongs to
                self._take_init(line, at, word)
        self.lines += len(lines)
        self.nccl_lines += len(lines) - others

    def _unwrapped(self, raw: bytes) -> tuple[bytes, bytes, int]:
        """Returns a line out of its JSON record, the same without the suffix, and where its "NCCL INFO" is."""
        line, at = raw, raw.find(b" NCCL INFO ")
        if at >= 0 and raw[:1] == b"{" and (message := plain_record(raw)) is not None:
            line, at = message, message.find(b" NCCL INFO ")
        if at >= 0 and self._suffix and line.endswith(self._suffix):
            return line, line[: -len(self._suffix)], at
        return line, line, at

    def _take_other(self, line: bytes, head: bytes) -> bytes:
        """Takes a line without "NCCL INFO"; returns the head that the next line may have in common."""
        if b"CCL " in line:
            self._slow(line)
            return b"\n"
        if line[:4] in _FRAGMENTS or b" via " in line or b"CCL" in line:
            self._slow(line)
        return head

    def _new_connection(self, thread: Thread, line: bytes, at: int, rest: bytes) -> None:
        """Takes a connection line that says something new."""
        if b"\\" in rest or b"&" in rest:  # something in it is spelled out
            self._slow(line)
        else:
            self._connection(thread, line[at + 11 :], cut=False)

    def _take_init(self, line: bytes, at: int, word: bytes) -> None:
        """Takes a message that may be an Init line."""
        thread = self._threads.get(line[:at]) if word == b"nccl" and line.count(b" NCCL ") == 1 else None
        if thread is not None and (init := _cached_init(line[at + 11 :])) is not None:
            self.state.add_init(thread, init)
        else:
            self._slow(line)

    def _slow(self, line: bytes, *, cut: bool = False) -> None:
        """Parses a line that may contain something new, with any wrapping. One line can contain merged lines of
        several processes.
        """
        before = self.cut_lines
        pieces: list[Piece] = []
        for part in peel(line):
            pieces += (
                messages(part, self._hosts, self._host_lengths) if part.count(b" NCCL ") > 1 else [Piece(part)]
            )
        torn_apart = any(piece.torn for piece in pieces)
        pieces[-1] = pieces[-1]._replace(torn=cut)
        for piece in pieces:
            self._message(piece)
        self.cut_lines = min(before + 1, self.cut_lines + torn_apart)

    def _message(self, piece: Piece) -> None:
        head, info, tail = piece.text.partition(_INFO)
        if not info:
            head, info, tail = piece.text.partition(_WARN)
        if not info:
            if self._torn.text and self._mended(piece.text):
                return
            head, tail = b"", self._fragment(piece.text)
        thread = self._thread(head.rstrip(), piece.host_ends)
        start = tail[:4]
        if start in (b"Chan", b"Ring", b"Coll"):
            if not self._connection(thread, tail, cut=piece.torn) and piece.torn and info:
                self._torn = piece
        elif start in (b"comm", b"nccl", b"[Ran"):
            if (init := _cached_init(tail)) is not None:
                self.state.add_init(thread, init)
            elif not take_abort(self.state, thread, tail) and (nodes := parse_nodes(tail)) is not None:
                member = thread.process.latest.get((nodes.comm, nodes.rank))
                if member is not None:
                    member.nodes = nodes.nodes
        elif tail not in thread.facts_seen:
            # A selection belongs to the current communicator; anything else holds for the whole log.
            if len(thread.facts_seen) < _MOST_FACTS and start not in (b"Usin", b"Assi"):
                thread.facts_seen.add(tail)
            take_fact(self.state, thread, tail, warning=info == _WARN, plain=not info)

    def _mended(self, rest: bytes) -> bool:
        """Parses a line that is the rest of an interrupted connection line. Returns whether it was one."""
        torn = self._torn
        head, _, tail = torn.text.partition(_INFO)
        for lost in range(torn.glued, -1, -1):  # split among the bytes that may be the other message's host
            joined = tail[: len(tail) - lost] + rest
            if parse_edge(joined) is not None:
                self._torn = Piece(b"")
                self.cut_lines += 1
                self.state.unread_network_lines -= names_network(tail)
                self._connection(self._thread(head.rstrip(), torn.host_ends), joined, cut=False)
                return True
        return False

    @staticmethod
    def _fragment(line: bytes) -> bytes:
        """Returns the message of a line without `NCCL INFO`, from the first word with which an NCCL message
        starts.
        """
        if line[:4] in _FRAGMENTS:
            return line
        for word in (b"Channel ", b"Ring ", b"CollNet "):
            if (at := line.find(word)) >= 0:
                return line[at:]
        return line

    def _connection(self, thread: Thread, tail: bytes, *, cut: bool) -> bool:
        """Parses a connection line. Returns False if it can't be parsed."""
        key = tail[10:] if tail[:8] == b"Channel " else tail[7:]  # behind "Channel NN", "Ring NN" or "CollNet"
        if not cut and key in thread.known_lines:
            return True
        if self.state.is_full_for(tail):
            if len(self._left_out) >= _MOST_SEEN:
                self._left_out.clear()
            self._left_out.add(key)
            return True
        if not cut and tail in self._parsed:
            parsed = self._parsed[tail]
        else:
            parsed = parse_edge(tail, cut=cut)
            if not cut and len(tail) < _LONGEST_KEPT_BYTES:
                if len(self._parsed) >= _MOST_SEEN:
                    self._parsed.clear()
                self._parsed[tail] = parsed
        if parsed is not None:
            edge, end = parsed
            # The channel number has two digits up to 99 ("%02d"), so that the key is the same for all of those.
            # Text that a wrapper appends isn't part of the key, and is often the same on the next line.
            if not cut and self.state.edges_left_out == 0:
                thread.known_lines.add(key[: end - len(tail) or None])
                self._suffix = (
                    tail[end:] if tail[end : end + 1].isspace() and len(tail) < _LONGEST_KEPT_BYTES else b""
                )
            self.state.add_edge(thread, edge)
            return True
        if tail.count(b" -> ") == 1 or tail.startswith(
            b"CollNet"
        ):  # "Ring 00 : 7 -> 0 -> 1" is topology, not a connection
            self.cut_lines += 1
            self.state.unread_network_lines += names_network(tail)
        elif not cut and len(thread.known_lines) < _MOST_SEEN:
            thread.known_lines.add(key)  # ring order, or topology
        return False

    def _thread(self, head: bytes, host_ends: bytes = b"") -> Thread:
        key = last_two_words(head)
        thread = self._threads.get(key)
        if thread is not None and not host_ends:
            return thread
        prefix = parse_prefix(head)
        if prefix is None:
            if self._anonymous is None:
                process = self.state.process(None, None, self.sources)
                self._anonymous = Thread(process, None, anonymous=True)
            return self._anonymous
        process = self.state.process(prefix.host, prefix.pid, self.sources, text(host_ends))
        if not key.endswith(b"]"):
            return Thread(process, prefix.device)  # a WARN line ends in file:line and has no connections
        if prefix.host is not None and len(self._hosts) < 10_000:
            self._hosts.add(prefix.host.encode())
            self._host_lengths.add(len(prefix.host.encode()))
        # A launcher's prefix without a space ("[rank0]:host:pid:tid") gives the same thread another key.
        place = (prefix.host, prefix.pid, prefix.tid, prefix.device)
        thread = next((t for t in process.threads if t.place == place), None)
        if thread is None:
            thread = Thread(process, prefix.device, place=place)
            process.threads.append(thread)
        if not host_ends and len(self._threads) < _MOST_KEYS:
            self._threads[key] = thread
        return thread


_cached_init = lru_cache(maxsize=20_000)(parse_init)
