"""Peels off what launchers, log collectors and terminals put around a line: the one place that NCCL logs and
benchmark tables share.

`Decoder` turns a source's bytes into UTF-8, whatever its encoding. `peel` gives the lines of text that a line
carries: the message of a JSON record, a quoted field with its escapes, HTML, colours (also those whose escape
character was spelled out or lost), and without what Ray appends. `Prefixes` learns what stands before a tool's own
lines and takes it off the others. Every function takes and gives one line without its line end, and takes time in
proportion to the line's length.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator
from typing import Any

_DEPTH = 4  # JSON in JSON, as a collector makes of what another one wrote
_MOST_STRINGS = 200
_MOST_SHAPES = 8
_SNIFFED_BYTES = 4096

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
LONGEST_BOM = 4

_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\].{0,200}?(?:\x07|\x1b\\)")
# The escape character spelled out (bash, C, JSON, terminals, rsyslog, its Unicode picture) or lost.
_SPELLED_COLOUR = re.compile(
    rb"(?:\\x1[bB]|\\033|\\e|\\u001[bB]|\^\[|ESC|#033|\xe2\x90\x9b|\xef\xbf\xbd)\[[0-9;]*[mK]"
    rb"|\[\d{1,3}(?:;\d{1,3})*m"
)
_WRAPPED = re.compile(rb"[\"'\\&<`]|\[\d{1,3}(?:;\d{1,3})*m|\[repeated \d|\xe2\x90\x9b|\dT\d\d:\d\d:\d\d|\^\[|#0")
_RECORD = re.compile(rb'[\[{]\s*["\[{]')
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-3][0-7]{2})|(.))|#(011|012|015)")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"e": b"\x1b", b"0": b"\0"}
_OCTETS = {b"011": b"\t", b"012": b"\n", b"015": b"\r"}  # rsyslog's way to write control characters
_PLAIN_RECORD = re.compile(
    rb'\{(?:"[a-z_@]{1,20}": ?"[^"\\]{0,80}", ?){0,8}"(?:log|message|msg)": ?"([^"]*?)(?:\\r)?(?:\\n)?"[,}]'
)
_TAG = re.compile(
    rb"</?(?:span|br|p|pre|code|div|td|tr|th|tbody|table|li|ul|b|i|a|em|strong|font|body|html)\b[^<>]{0,300}>",
    re.I,
)
_RAY = re.compile(rb"\s*\[repeated \d+x across (?:cluster|all nodes?)\].*$")
# A time stamp that nothing separates from what follows.
_GLUED_TIME = re.compile(
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d))(?=[^\s\]\")',])"
)

# Fields that hold the message, in the records of docker, CRI, fluentd, vector, Cloud Logging, CloudWatch, Datadog,
# journald, Loki and of structured loggers.
_MESSAGE_KEYS = frozenset(
    ("log", "message", "msg", "textpayload", "@message", "line", "text", "body", "content", "event", "raw", "_raw")
)


class Decoder:
    """Turns the bytes of one source, cut anywhere, into UTF-8: by its byte order mark, else by where its NULs are.

    Bytes of an encoding without a mark and without NULs pass as they are.
    """

    def __init__(self) -> None:
        self._decode: codecs.IncrementalDecoder | None = None
        self._start: bytes | None = b""  # None once there was enough to tell the encoding by

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes of the source, in UTF-8."""
        if self._start is not None:
            self._start += chunk
            return self._begin() if len(self._start) >= LONGEST_BOM else b""
        return chunk if self._decode is None else self._decode.decode(chunk).encode("utf-8", "replace")

    def end(self) -> bytes:
        """What a source that is over still owes: the whole of one that was too short to tell its encoding by."""
        return b"" if self._start is None else self._begin()

    def _begin(self) -> bytes:
        start, self._start = self._start or b"", None
        name, mark = encoding_of(start)
        if name != "utf-8":
            self._decode = codecs.getincrementaldecoder(name)("replace")
        return self.feed(start[mark:])


def encoding_of(start: bytes) -> tuple[str, int]:
    """The encoding that a source's first bytes speak for, and how long its byte order mark is.

    UTF-16 without a mark is told by NULs in every second place and hardly any in the others.
    """
    for mark, name in _BOMS:
        if start.startswith(mark):
            return name, len(mark)
    head = start[:_SNIFFED_BYTES]
    if b"\0" in head and len(head) >= 4:
        even, odd = head[::2].count(0), head[1::2].count(0)
        half = len(head) // 2
        if odd > 0.7 * half and even < 0.05 * half:
            return "utf-16-le", 0
        if even > 0.7 * half and odd < 0.05 * half:
            return "utf-16-be", 0
    return "utf-8", 0


def is_text(start: bytes) -> bool:
    """Whether a source's first bytes are text in an encoding that `Decoder` reads."""
    return b"\0" not in start or encoding_of(start)[0] != "utf-8"


def without_colours(data: bytes) -> bytes:
    """The data without a terminal's escape sequences."""
    return _COLOUR.sub(b"", data) if b"\x1b" in data else data


def peel(line: bytes) -> list[bytes]:
    """The lines of text that a line carries, without what was put around them."""
    if _WRAPPED.search(line) is None:
        return [line]
    return list(_peeled(line, 0))


def _peeled(line: bytes, depth: int) -> Iterator[bytes]:
    line = _SPELLED_COLOUR.sub(b"", without_colours(line))
    if depth < _DEPTH and (strings := _record(line)) is not None:
        for string in strings:
            for part in string.splitlines() or [b""]:
                yield from _peeled(part, depth + 1)
        return
    if b"\\" in line or b"#01" in line:
        line = _SPELLED_COLOUR.sub(b"", without_colours(_ESCAPE.sub(_unescaped, line)))
    if b"&" in line:
        line = html.unescape(line.decode("utf-8", "replace")).encode("utf-8", "replace")
    if b"<" in line:
        line = _TAG.sub(b" ", line)
    for part in re.split(rb"[\r\n]+", line):
        yield _GLUED_TIME.sub(rb"\1 ", _RAY.sub(b"", part))


def _unescaped(match: re.Match[bytes]) -> bytes:
    unicode, hexadecimal, octal, letter, octet = match.groups()
    if unicode is not None:
        return chr(int(unicode, 16)).encode("utf-8", "replace")
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8) & 0xFF,))
    return _OCTETS[octet] if octet is not None else _LETTERS.get(letter, letter)


def _record(line: bytes) -> list[bytes] | None:
    """The messages of a JSON record that the line holds, or None where it holds none."""
    match = _RECORD.search(line)
    if match is None or b"CCL " in line[: match.start()]:
        return None  # a message that goes on with braces or brackets
    text = line[match.start() :].decode("utf-8", "replace")
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    strings = list(_strings(found, "", 0))
    chosen = [s for _, s in strings if "CCL " in s or " via " in s]
    chosen = chosen or [s for key, s in strings if key in _MESSAGE_KEYS]
    if not chosen and strings:
        chosen = [max((s for _, s in strings), key=len)]
    return [s.encode("utf-8", "replace") for s in chosen] or None


def plain_record(line: bytes) -> bytes | None:
    """The message of a JSON record of the commonest form, found without decoding; None where that can't be done.

    The message must be under one of the usual keys, and may hold no escapes but those of its line end and of ">",
    which Go's encoder writes (docker, containerd).
    """
    match = _PLAIN_RECORD.match(line)
    if match is None:
        return None
    message = match[1].replace(b"\\u003e", b">")
    return None if b"\\" in message or b"[repeated" in message else message


def _strings(value: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    """The strings in a record with the lower-case keys they stand under, a bounded number of them."""
    pending: list[tuple[str, Any]] = [(key, value)]
    given = 0
    while pending and given < _MOST_STRINGS:
        name, item = pending.pop(0)
        if isinstance(item, str):
            given += 1
            yield name, item
        elif isinstance(item, dict):
            pending += [(str(k).lower(), v) for k, v in list(item.items())[:_MOST_STRINGS]]
        elif isinstance(item, list):
            pending += [(name, v) for v in item[:_MOST_STRINGS]]


# What is known to stand before a line, one after the other and in any order.
_KNOWN_PREFIX = re.compile(
    r"""(?:
      \[?\d{4}[-/]\d\d[-/]\d\d[T\ _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\ ?(?:Z|UTC|[+-]\d\d:?\d\d)?\]?[\ \t|,:]*
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?(?=\s)
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \S+\ \S+?(?:\[\d+\])?:(?=\s|$)         # syslog
    | (?:stdout|stderr)\ [FP](?=\s|$)                                               # CRI
    | \[[\w.@-]*,?\d*\]<std(?:out|err)>:                                             # Open MPI 4
    | \[(?:prterun|mpirun|prte)-[\w.@-]+,\d+\]<std(?:out|err)>:                       # Open MPI 5
    | \[(?:default|rank|Rank|rank:\ ?)\ ?\d+\]:?(?=\s|$|[^\d\s])                      # torchrun, Lightning
    | \((?:[\w.]+\ )?(?:pid|ip)=[^)]{1,80}\)                                         # Ray
    | \[[\w./-]{1,120}\](?=\s|$)                                                     # hydra, Intel MPI, kubectl
    | [\w.-]{1,80}\s*\|(?=\s|$)                                                      # docker compose
    | \d{1,6}:(?=\s|$|\#)                                                            # srun -l
    | [A-Za-z][\w.-]{0,80}:(?=\s{1,2}\S|\s{3,}\d|\s*$)                                # pdsh, ansible
    | (?:\d{1,3}\.){3}\d{1,3}:(?=\s|$)                                               # DeepSpeed's launcher
    )[ \t]?""",
    re.X,
)


class Prefixes:
    """Takes off what stands before a tool's lines.

    `learn` is told the text before a line that was recognised; lines that begin with text of the same shape (the
    digits may differ) lose it. What launchers and collectors are known to write goes in any case.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, re.Pattern[str]] = {}

    def learn(self, prefix: str) -> None:
        """Remembers the shape of the text before a recognised line."""
        if not prefix.strip() or len(prefix) > 300 or len(self._shapes) >= _MOST_SHAPES:
            return
        shape = re.sub(r"\d+", r"\\d+", re.escape(prefix.rstrip())) + r"[ \t]?"
        if shape not in self._shapes:
            self._shapes[shape] = re.compile(shape)

    def bare(self, line: str) -> str:
        """The line without what stands before it."""
        for pattern in self._shapes.values():
            if (match := pattern.match(line)) is not None:
                return line[match.end() :]
        for _ in range(4):
            text = line.lstrip()
            match = _KNOWN_PREFIX.match(text)
            if match is None or not match[0]:
                break
            line = text[match.end() :]
        return line
