"""Hook of mkdocs: turns links to files outside docs/ into links to the repository.

In the repository a page links to a file such as `../../results/README.md` by its relative path. The site contains
only docs/, so there the same link leads to the file's page in the repository. A link to a file that doesn't exist
is a warning, which `mkdocs build --strict` treats as an error.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

_log = logging.getLogger("mkdocs.plugins.site_links")

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?((?:\s+\"[^\"]*\")?\))")
_FENCE = re.compile(r"^\s*(```|~~~)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Returns the page's text with absolute links in place of links that leave docs/."""
    root = Path(config["config_file_path"]).parent
    source = Path(page.file.abs_src_path)
    lines, in_block = [], False
    for line in markdown.split("\n"):
        if _FENCE.match(line):
            in_block = not in_block
        lines.append(line if in_block else _rewritten(line, source, root, config))
    return "\n".join(lines)


def _rewritten(line: str, source: Path, root: Path, config: Any) -> str:
    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith(("/", "mailto:")):
            return match[0]
        path = (source.parent / target).resolve()
        if path.is_relative_to(config["docs_dir"]) or not path.is_relative_to(root):
            return match[0]
        if not path.exists():
            _log.warning("%s: the link %s leads to a file that doesn't exist", source.relative_to(root), target)
        kind = "tree" if path.is_dir() else "blob"
        url = f"{config['extra']['repository']}/{kind}/main/{path.relative_to(root).as_posix()}"
        return f"{match[1]}{url}{match[3] or ''}{match[4]}"

    return _LINK.sub(link, line)
