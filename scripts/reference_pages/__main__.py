"""Writes every made page and schema into docs/reference."""

from __future__ import annotations

from pathlib import Path

from reference_pages.pages import all_files


def main() -> None:
    """Writes the files that differ and prints their names."""
    folder = Path("docs/reference")
    for name, text in all_files().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


main()
