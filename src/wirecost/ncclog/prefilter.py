"""Discards the lines of a log that contain nothing new before they are parsed.

Training output is mixed with NCCL's lines, and NCCL repeats each connection for every channel. A known connection
costs a comparison and a set look-up, a line of training output the search for one word. NCCL lines that have lost
their beginning are searched for in many lines at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Protocol


class KnownThread(Protocol):
    """A thread's known connections: the parts of their lines behind the channel's two digits."""

    known_lines: set[bytes]


# Beginnings of pasted lines that have lost even "NCCL INFO". Each pattern starts with literal letters, which makes
# the search many times faster.
_START = re.compile(rb"\n(?:Channel |Ring |Coll|comm |ncclComm|Using (?:network|internal)|NET/|GPU Direct|RCCL )")
# The transport of a connection, whose end may be lost too.
_MEDIUM = re.compile(
    rb" via (?:NET/|COLLNET/|P2P|SHM|direct |"
    rb"(?:N(?:ET?)?|C(?:O(?:L(?:L(?:N(?:ET?)?)?)?)?)?|P2?|SH?|d[irect]{0,5})?$)",
    re.MULTILINE,
)
_DOCKER = b'{"log":"'  # docker's json-file driver wraps each line
_BEHIND_CHANNEL, _BEHIND_RING = len(b"CCL INFO Channel NN"), len(b"CCL INFO Ring NN")
_MESSAGE = len(b"CCL INFO ")
_USUAL_BYTES = 120  # of a connection's line
_LONG_NUMBER = re.compile(rb"\d{20,}")
_PLAIN = frozenset((b"", b" ", b"_", b",", b".", b":", b";", b")", b"-", b"/", b"="))
_CONNECTIONS = frozenset((b"Chan", b"Ring"))
_OWN_WORDS = frozenset((b" INFO", b" WARN", b" vers"))


class Prefilter:
    """Filters blocks of whole lines.

    Args:
        threads: the threads by "host:pid:tid [device]" as in the log.
        left_out: known connections of any thread that are not kept.
        words: the first four letters of the relevant messages.
    """

    def __init__(self, threads: Mapping[bytes, KnownThread], left_out: Set[bytes], words: Set[bytes]) -> None:
        self._threads, self._left_out, self._words = threads, left_out, words
        self.dismissed = 0
        """NCCL's lines among those that were dismissed."""

    def sift(self, block: bytes) -> Iterator[list[bytes]]:
        """Yields lists of the lines that must be parsed, in order. Parse a list before requesting the next one: an
        Init line changes the meaning of the lines behind it.
        """
        threads, left_out = self._threads, self._left_out
        block_lines = block.split(b"\n")
        lines = _undocked(block_lines) if block.startswith(_DOCKER) else block_lines
        # Of the last known connection line: all up to its channel's two digits, where its text goes on behind
        # them, and what its thread has said. Threads mostly print many lines in a row.
        head, rest_at, known_lines, last = b"\n", 0, left_out, None  # no line holds a line end
        pending: list[bytes] = []
        others: list[bytes] = []
        self.dismissed += len(lines)
        for number, line in enumerate(lines):
            if line.startswith(head) and line[rest_at:] in known_lines:
                continue
            at = line.find(b"CCL")
            if at < 0:
                others.append(line)
                continue
            thread = threads.get(line[: at - 2])  # up to the space and the N of NCCL
            if thread is None:
                if line[at + 3 : at + 8] not in _OWN_WORDS and _is_plain_word(line, at):
                    others.append(line)
                    continue
                thread = threads.get(last_two_words(line, at - 2))  # a launcher's words come before it
            if thread is not None:
                rest = line[at + _BEHIND_CHANNEL :]
                if rest in thread.known_lines or rest in left_out:
                    if thread is last and not left_out:
                        rest_at, known_lines = at + _BEHIND_CHANNEL, thread.known_lines
                        head = line[: rest_at - 2]
                    last = thread
                    continue
            word = line[at + _MESSAGE : at + _MESSAGE + 4]
            if self._is_known(line, at, word, thread):
                continue
            if others:
                self.dismissed -= len(others)
                pending += _pieces(others)
                others.clear()
            self.dismissed -= 1
            pending.append(without_long_numbers(block_lines[number]))
            if word not in _CONNECTIONS:
                yield pending
                pending, head, last = [], b"\n", None
        self.dismissed -= len(others)
        pending += _pieces(others)
        if pending:
            yield pending

    def _is_known(self, line: bytes, at: int, word: bytes, thread: KnownThread | None) -> bool:
        """Returns whether a line of NCCL, whose "CCL" is at `at`, is a connection that is known, or a message that
        isn't read."""
        if word in _CONNECTIONS:
            rest = line[at + _BEHIND_RING :]
            return (
                thread is not None and word == b"Ring" and (rest in thread.known_lines or rest in self._left_out)
            )
        return word not in self._words and word[:1] != b"/" and line[at - 2 : at + _MESSAGE] == b" NCCL INFO "


def _undocked(lines: list[bytes]) -> list[bytes]:
    """Returns lines of docker's json-file driver without what it wraps around them."""
    return [line[len(_DOCKER) : line.find(b'\\n"')] if b'\\n"' in line else line for line in lines]


def _is_plain_word(line: bytes, at: int) -> bool:
    """Returns whether "CCL" at `at` is only a word in another program's line ("backend: NCCL", NCCL_DEBUG)."""
    return line[at + 3 : at + 4] in _PLAIN and line.find(b"CCL", at + 3) < 0


def _pieces(lines: list[bytes]) -> list[bytes]:
    """Returns the lines of other programs that may contain a part of an NCCL line."""
    text = b"\n" + b"\n".join(lines)
    if _START.search(text) is None and _MEDIUM.search(text) is None:
        return []
    return [without_long_numbers(line) for line in lines if _START.match(b"\n" + line) or _MEDIUM.search(line)]


def without_long_numbers(line: bytes) -> bytes:
    """Returns the line with a ? in place of each decimal number that is too long for a count, rank
    or process ID.
    """
    return _LONG_NUMBER.sub(b"?", line) if len(line) > _USUAL_BYTES else line


def last_two_words(head: bytes, end: int | None = None) -> bytes:
    """Returns "host:pid:tid [device]" from the text before " NCCL INFO", which starts at `end`."""
    if end is None:
        end = len(head)
    return head[head.rfind(b" ", 0, max(head.rfind(b" ", 0, max(end, 0)), 0)) + 1 : end]
