"""Removes what launchers, log collectors and terminals put around a line of an NCCL log or a benchmark table.

`Decoder` turns a source's bytes into UTF-8, whatever its encoding. `peel` returns the lines of text in a line: it
takes the message out of a JSON record or a quoted field with escapes, and removes HTML, colours (also those whose
escape character was spelled out or lost) and Ray's suffix. `Prefixes` learns the text before a tool's own lines
and removes it from the other lines. Every function takes one line without its line end, in time proportional to
the line's length.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator
from typing import Any

_DEPTH = 4  # levels of JSON in JSON, which arises where one collector reads another's records
_MOST_STRINGS = 200
_MOST_SHAPES = 8
_SNIFFED_BYTES = 4096

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, with which it begins
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

# Fields that hold the message in the records of docker, CRI, fluentd, vector, Cloud Logging, CloudWatch, Datadog,
# journald, Loki and structured loggers.
_MESSAGE_KEYS = frozenset(
    ("log", "message", "msg", "textpayload", "@message", "line", "text", "body", "content", "event", "raw", "_raw")
)


class Decoder:
    """Turns the bytes of one source, in chunks of any size, into UTF-8.

    It detects the encoding by the byte order mark, else by the positions of NULs. Bytes without either pass
    unchanged.
    """

    def __init__(self) -> None:
        self._decode: codecs.IncrementalDecoder | None = None
        self._start: bytes | None = b""  # None once the encoding has been determined

    def feed(self, chunk: bytes) -> bytes:
        """Returns the next bytes of the source in UTF-8."""
        if self._start is not None:
            self._start += chunk
            return self._begin() if len(self._start) >= LONGEST_BOM else b""
        return chunk if self._decode is None else self._decode.decode(chunk).encode("utf-8", "replace")

    def end(self) -> bytes:
        """Returns the bytes held back at the end of a source too short to determine its encoding before."""
        return b"" if self._start is None else self._begin()

    def _begin(self) -> bytes:
        start, self._start = self._start or b"", None
        name, mark = encoding_of(start)
        if name != "utf-8":
            self._decode = codecs.getincrementaldecoder(name)("replace")
        return self.feed(start[mark:])


def encoding_of(start: bytes) -> tuple[str, int]:
    """Returns the encoding that a source's first bytes indicate, and the length of its byte order mark.

    UTF-16 without a mark is recognised by NULs in nearly every second byte and in almost none of the others.
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
    """Returns whether a source's first bytes are text in an encoding that `Decoder` reads."""
    return b"\0" not in start or encoding_of(start)[0] != "utf-8"


def without_colours(data: bytes) -> bytes:
    """Returns the data without terminal escape sequences."""
    return _COLOUR.sub(b"", data) if b"\x1b" in data else data


def peel(line: bytes) -> list[bytes]:
    """Returns the lines of text in a line, without what launchers, collectors and terminals put around them."""
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
    """Returns the messages of the JSON record in a line; None if it holds no record."""
    match = _RECORD.search(line)
    if match is None or b"CCL " in line[: match.start()]:
        return None  # a message that contains braces or brackets
    text = line[match.start() :].decode("utf-8", "replace")
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    strings = list(_strings(record))
    chosen = [s for _, s in strings if "CCL " in s or " via " in s]
    chosen = chosen or [s for key, s in strings if key in _MESSAGE_KEYS]
    if not chosen and strings:
        chosen = [max((s for _, s in strings), key=len)]
    return [s.encode("utf-8", "replace") for s in chosen] or None


def plain_record(line: bytes) -> bytes | None:
    """Returns the message of a JSON record of the commonest form without decoding JSON; None for other lines.

    The message must be under one of the usual keys. The only escapes that it may hold are those of its line end
    and of ">", which Go's encoder writes (docker, containerd).
    """
    match = _PLAIN_RECORD.match(line)
    if match is None:
        return None
    message = match[1].replace(b"\\u003e", b">")
    return None if b"\\" in message or b"[repeated" in message else message


def _strings(record: Any) -> Iterator[tuple[str, str]]:
    """Yields (lower-case key, string) for the first strings in a record, a bounded number of them."""
    pending: list[tuple[str, Any]] = [("", record)]
    yielded = 0
    while pending and yielded < _MOST_STRINGS:
        name, item = pending.pop(0)
        if isinstance(item, str):
            yielded += 1
            yield name, item
        elif isinstance(item, dict):
            pending += [(str(k).lower(), v) for k, v in list(item.items())[:_MOST_STRINGS]]
        elif isinstance(item, list):
            pending += [(name, v) for v in item[:_MOST_STRINGS]]


# Known prefixes of a line. Several may follow one another in any order.
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
    """Removes the text that launchers and collectors put before a tool's lines.

    `learn` takes the text before a recognised line. `bare` removes text of the same shape (its digits may differ)
    from the start of other lines, and the known prefixes of launchers and collectors.
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
        """Returns the line without its prefixes."""
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
