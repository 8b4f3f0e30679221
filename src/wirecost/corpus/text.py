"""Reads the text of a corpus: English text that every CPython ships, or a file of the user's."""

from __future__ import annotations

from pathlib import Path

from wirecost import reading
from wirecost.errors import SpecError, UnsupportedError, WirecostError

PYTHON_DOCS = "python-docs"
MAX_BYTES = 512 << 20


def read_text(corpus: str) -> str:
    """Returns the text of a corpus.

    Args:
        corpus: `python-docs` (the language reference inside every CPython, about 0.6 MB), or the path of a text
            file.

    Raises:
        SpecError: if the path can't be read as UTF-8 text, or the file holds no text.
        UnsupportedError: if this Python was installed without its language reference.
    """
    if corpus == PYTHON_DOCS:
        return _python_docs()
    path = Path(corpus)
    if "\0" in corpus:
        raise SpecError(f"data.corpus: {corpus!r} is not a path")
    try:
        if not path.exists():
            raise SpecError(f"data.corpus: no such file '{corpus}'; give a text file's path or '{PYTHON_DOCS}'")
        # Pipes are refused, because a pipe can be read only once, and the text is needed more than once.
        text = reading.read_text(path, most_bytes=MAX_BYTES, what="corpus for a measurement", pipes=False)
    except OSError as error:  # the name is too long for the file system
        raise SpecError(f"data.corpus: {corpus[:80]}: {error.strerror}") from error
    except SpecError:
        raise
    except WirecostError as error:
        raise SpecError(f"data.corpus: {error}") from error
    if not text.strip():
        raise SpecError(f"data.corpus: {corpus} holds no text")
    return text


def _python_docs() -> str:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UnsupportedError(
            "this Python comes without its language reference (pydoc_data); set data.corpus to a text file's path"
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics))
