"""Turns the wikitext of an article into plain text.

One linear pass removes what prose doesn't consist of: comments, templates, tables, references, formulas, tags,
links to files and categories. `mwparserfromhell` parses the rest: links, headings, lists, entities. It alone would
take three times as long, because most of its time goes into templates, and a time that grows with the square of
the number of unclosed tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HIDDEN_TAGS = (
    "categorytree", "ce", "chem", "gallery", "graph", "hiero", "imagemap", "indicator", "inputbox", "mapframe",
    "maplink", "math", "ref", "references", "score", "source", "syntaxhighlight", "table", "templatedata",
    "templatestyles", "timeline",
)  # fmt: skip
"""Tags whose contents aren't prose."""
_SHOWN_TAGS = (
    "abbr", "b", "bdi", "bdo", "big", "blockquote", "br", "caption", "center", "cite", "code", "data", "dd", "del",
    "dfn", "div", "dl", "dt", "em", "font", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "includeonly", "ins",
    "kbd", "li", "link", "mark", "meta", "noinclude", "ol", "onlyinclude", "p", "poem", "pre", "q", "rb", "rp",
    "rt", "rtc", "ruby", "s", "samp", "section", "small", "span", "strike", "strong", "sub", "sup", "td", "th",
    "time", "tr", "tt", "u", "ul", "var", "wbr",
)  # fmt: skip
"""Tags that are removed while their contents stay."""
_TOKEN = re.compile(
    r"<!--|-->|\{\{|\}\}|\[\[|\]\]|^[ \t:*#]*\{\||^[ \t]*\|\}(?!\})"
    rf"|<(?P<close>/?)(?P<tag>{'|'.join(_HIDDEN_TAGS)}|nowiki)\b[^<>]{{0,2000}}>",
    re.MULTILINE | re.IGNORECASE,
)
_SHOWN_TAG = re.compile(rf"<(/?)({'|'.join(_SHOWN_TAGS)})\b[^<>]{{0,2000}}>", re.IGNORECASE)
_COMMENT, _COMMENT_END, _LINK_END = "<!--", "-->", "]]"
_OPENERS = {"{{": "}}", "[[": "]]", "{|": "|}"}
_MEDIA_NAMES = "jpe?g|png|svg|gif|tiff?|webp|ogg|oga|ogv|webm|pdf|djvu|midi?|wav|mp3"
_MEDIA = re.compile(rf"[^|\n]{{1,300}}\.(?:{_MEDIA_NAMES})\s*(?:\||$)", re.IGNORECASE)
_OTHER_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,10})?:[^|\n]+$")
_ENGLISH_NAMES = ("file", "image", "media", "category")
"""Every wiki accepts these names of namespaces besides its own."""
_LINK_CHARACTERS = 320
"""Number of characters of a link that show whether it leads to a file."""
_PARSED_CHARACTERS = 64 << 10
_HEADING = re.compile(r"^(={1,6})[^\n]*?\1[ \t]*$")
_MAGIC_WORD = re.compile(r"__[A-Z]{3,30}__")
_EMPTY_BRACKETS = re.compile(r" ?[(（][\s,;:、，；/–-]{0,20}[)）]")
"""What removed templates leave of brackets."""
_SPACES = re.compile(r"[ \t\u00a0]+")
_LINE_BORDERS = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")
_EXTERNAL_LINK = re.compile(
    r"\[(?:(?:https?|ftp):)?//[^\s\]\[<>]{1,1000}[ \t]{0,9}([^\]\n]{0,1000})\]", re.IGNORECASE
)
_UNCLOSED_LINK = re.compile(r"\[(?=[a-z]{0,9}:?//)", re.IGNORECASE)
_QUOTES = re.compile(r"'{2,}")
_LITERAL = str.maketrans({c: f"&#{ord(c)};" for c in "[]{}|'=*#:;<&"})
"""Characters of <nowiki> that would be markup elsewhere, as entities."""
_REDIRECT = re.compile(r"\s{0,20}#\s{0,5}redirec(?:t|ción|ionar)", re.IGNORECASE)


def is_redirect(wikitext: str) -> bool:
    """Returns whether the text of a page in a dump without <redirect> elements redirects to another page."""
    return _REDIRECT.match(wikitext) is not None


def plain_text(wikitext: str, hidden_namespaces: Iterable[str] = ()) -> str:
    """Returns the prose of an article: headings, paragraphs and lists.

    Args:
        hidden_namespaces: the wiki's own names for files and categories, in lower case. Links to them are removed.
    """
    import mwparserfromhell

    prose = _without_empty_sections(remove_markup(wikitext, hidden_namespaces))
    # The parser takes a quadratic time for what is opened and never closed.
    prose = _UNCLOSED_LINK.sub("&#91;", _EXTERNAL_LINK.sub(r"\1", prose)).replace("<", "&lt;")
    # Its time grows faster than the text, and its nodes take up to a kilobyte each.
    text = ""
    for part in parts_of(prose, _PARSED_CHARACTERS):
        code = mwparserfromhell.parse(part, skip_style_tags=True)
        # The library strips line ends.
        text += part[: len(part) - len(part.lstrip())] + str(code.strip_code(normalize=True, collapse=True))
    text = _EMPTY_BRACKETS.sub("", _MAGIC_WORD.sub("", text))
    text = _LINE_BORDERS.sub("\n", _SPACES.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def parts_of(text: str, most: int) -> Iterator[str]:
    """Yields a text in parts of at most `most` characters. They end with paragraphs or, without these, with lines
    or words."""
    start = 0
    while len(text) - start > most:
        end = start + most
        for border in ("\n\n", "\n", " "):
            at = text.rfind(border, start + most // 2, end)
            if at >= 0:
                end = at
                break
        yield text[start:end]
        start = end
    yield text[start:]


def remove_markup(wikitext: str, hidden_namespaces: Iterable[str] = ()) -> str:
    """Returns wikitext without comments, templates, tables, tags, links to files and categories, bold and italics.

    It takes a time linear in the length of the text. What is opened and never closed becomes entities.
    """
    spans = _Scanner(wikitext, {*_ENGLISH_NAMES, *hidden_namespaces}).scan()
    pieces: list[str] = []
    last = 0
    for start, end, shown in spans:
        if start >= last:
            pieces += (wikitext[last:start], shown)
        last = max(last, end)
    pieces.append(wikitext[last:])
    text = _SHOWN_TAG.sub(lambda tag: "\n" if tag[2].lower() in ("br", "hr") else "", "".join(pieces))
    return _QUOTES.sub(_apostrophe, text)


def _apostrophe(quotes: re.Match[str]) -> str:
    """Returns what remains of the quotes around bold or italic text: an apostrophe if they are one too many, as in
    four of them or in the genitive of a title in italics."""
    text, start, end = quotes.string, quotes.start(), quotes.end()
    genitive = end - start == 3 and text[end : end + 1] == "s" and text[start - 1 : start].isalnum()
    return "'" if end - start == 4 or genitive else ""


class _Scanner:
    """Finds the parts of a text that are replaced.

    Attributes:
        spans: start, end, and what replaces them.
    """

    def __init__(self, text: str, namespaces: set[str]) -> None:
        self.text = text
        self.namespaces = namespaces
        self.spans: list[tuple[int, int, str]] = []
        self._open: dict[str, list[int]] = {}
        """The starts of the openings, by the text that closes them."""
        self._literal = ""
        """The end of the comment or <nowiki> that was begun at `_literal_start`."""
        self._literal_start = 0

    def scan(self) -> list[tuple[int, int, str]]:
        """Returns the spans, sorted by their start."""
        for match in _TOKEN.finditer(self.text):
            tag = (match["tag"] or "").lower()
            if self._literal:
                self._end_literal(match, tag)
            elif match.group() == _COMMENT or (tag == "nowiki" and _opens(match)):
                self._literal, self._literal_start = tag or _COMMENT_END, match.start()
            elif tag:
                self._tag(match, tag)
            else:
                self._bracket(match)
        for opener, closer in _OPENERS.items():
            for start in self._open.get(closer, ()):
                at = self.text.index(opener, start)  # a table's opening begins with the line
                self.spans.append((at, at + 2, opener.translate(_LITERAL)))
        # If spans have the same start, the longest one counts.
        return sorted(self.spans, key=lambda span: (span[0], -span[1]))

    def _end_literal(self, match: re.Match[str], tag: str) -> None:
        if match.group() == self._literal == _COMMENT_END:
            self.spans.append((self._literal_start, match.end(), ""))
        elif tag == self._literal == "nowiki" and match["close"]:
            content = self.text[self.text.index(">", self._literal_start) + 1 : match.start()]
            self.spans.append((self._literal_start, match.end(), content.translate(_LITERAL)))
        else:
            return
        self._literal = ""

    def _tag(self, match: re.Match[str], tag: str) -> None:
        self.spans.append((match.start(), match.end(), ""))
        if _opens(match):
            self._open.setdefault(tag, []).append(match.start())
        elif match["close"] and self._open.get(tag):
            # A tag of this kind doesn't contain itself: an earlier one was never closed.
            self.spans.append((self._open[tag][-1], match.end(), ""))
            self._open[tag].clear()

    def _bracket(self, match: re.Match[str]) -> None:
        bracket = match.group()
        bracket = bracket.lstrip(":*# \t") if bracket[-2:] in ("{|", "|}") else bracket
        if bracket in _OPENERS:
            self._open.setdefault(_OPENERS[bracket], []).append(match.start())
        elif self._open.get(bracket):
            first = self._open[bracket].pop()
            if bracket != _LINK_END or _is_hidden_link(self.text, first + 2, match.start(), self.namespaces):
                self.spans.append((first, match.end(), ""))


def _opens(tag: re.Match[str]) -> bool:
    return not tag["close"] and not tag.group().endswith("/>")


def _is_hidden_link(text: str, start: int, end: int, namespaces: set[str]) -> bool:
    target = text[start : min(end, start + _LINK_CHARACTERS)]
    name, colon, _ = target.partition(":")
    if colon and name.strip().lower().replace("_", " ") in namespaces:
        return True
    return bool(colon and (_MEDIA.match(target) or _OTHER_LANGUAGE.match(target)))


def _without_empty_sections(text: str) -> str:
    """Returns wikitext without the headings of sections that contain nothing."""
    kept: list[str] = []
    below = 0  # level of the heading that was kept last, reading from the end
    has_text = False
    for line in reversed(text.split("\n")):
        heading = _HEADING.match(line) if line.startswith("=") else None
        if heading is None:
            has_text = has_text or bool(line.strip())
            kept.append(line)
            continue
        level = len(heading[1])
        if has_text or level < below:
            kept.append(line)
            below = level
        has_text = False
    return "\n".join(reversed(kept))
