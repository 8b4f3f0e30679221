"""Dumps and texts to prepare, and the excerpt of the English Wikipedia that the package gensim contains."""

from __future__ import annotations

import bz2
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

EXCERPT = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>dewiki</dbname>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
END = "</mediawiki>\n"


def page(title: str, text: str, *, namespace: int | None = 0, redirect: str | None = None, number: int = 1) -> str:
    """Returns a <page> element."""
    ns = "" if namespace is None else f"    <ns>{namespace}</ns>\n"
    to = "" if redirect is None else f'    <redirect title="{redirect}" />\n'
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n{ns}    <id>{number}</id>\n{to}    <revision>\n"
        f"      <id>{number}</id>\n      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def dump(pages: Iterable[str]) -> bytes:
    """Returns a dump."""
    return (HEADER + "".join(pages) + END).encode()


def multistream(pages: list[str], each: int = 3) -> bytes:
    """Returns a dump in many bzip2 streams, as Wikipedia's multistream dumps are."""
    groups = ["".join(pages[n : n + each]) for n in range(0, len(pages), each)]
    return b"".join(bz2.compress(part.encode()) for part in [HEADER, *groups, END])


def articles(count: int, words: int = 60) -> list[str]:
    """Returns articles with different words."""
    return [
        page(f"Title {n}", " ".join(f"word{n}x{m}" for m in range(words)) + f". The end of {n}.", number=n)
        for n in range(count)
    ]


def excerpt() -> Path:
    """Returns the path of the excerpt, which is downloaded unless an earlier test did so. The test is skipped if
    there is no package index."""
    folder = Path(os.environ.get("WIRECOST_TEST_CACHE", Path(tempfile.gettempdir()) / "wirecost-test-cache"))
    path = folder / EXCERPT
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run = subprocess.run([*command, "--dest", scratch, "gensim"], capture_output=True, text=True, check=False)
        if run.returncode:
            pytest.skip("no package index gives gensim, which contains the excerpt of Wikipedia")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(f"gensim/test/test_data/{EXCERPT}")
        partial = Path(scratch) / EXCERPT
        partial.write_bytes(content)
        partial.rename(path)
    return path
