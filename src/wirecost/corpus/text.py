"""Reads the text of a corpus: English text that every CPython ships, or a file of the user's."""

from __future__ import annotations

from pathlib import Path

from wirecost.errors import SpecError, UnsupportedError

PYTHON_DOCS = "python-docs"


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
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SpecError(
            f"data.corpus: no such file '{corpus}'; give a text file's path or '{PYTHON_DOCS}'"
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"data.corpus: {corpus} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise SpecError(f"data.corpus: {corpus}: {error.strerror}") from error
    except ValueError as error:
        raise SpecError(f"data.corpus: {corpus!r} is not a path ({error})") from error
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
