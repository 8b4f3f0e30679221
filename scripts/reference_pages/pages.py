"""All files that are made, by their path in docs/reference."""

from __future__ import annotations

import json

from reference_pages import cli, csv_columns, json_page, presets, schemas, yaml_keys


def all_files() -> dict[str, str]:
    """Returns the text of every file that is made from the code."""
    files = {
        "cli.md": cli.page(),
        "yaml.md": yaml_keys.page(),
        "csv.md": csv_columns.page(),
        "json.md": json_page.page(),
        "presets.md": presets.page(),
    }
    for name, schema in schemas.all_schemas().items():
        files[f"schemas/{name}.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    return {name: text if text.endswith("\n") else f"{text}\n" for name, text in files.items()}
