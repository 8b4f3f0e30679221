"""The page that lists the JSON schemas."""

from __future__ import annotations

from reference_pages import NOTICE, sentence, table
from reference_pages.schemas import ADDRESS, OUTPUTS, YAML_FILES

_TEXT = """# JSON schemas

Each schema is a file ([JSON Schema](https://json-schema.org), draft 2020-12). Those of outputs allow no other
keys: a new key comes with a new schema.

## YAML files

An editor with a YAML language server (the YAML extension of VS Code, for example) completes keys, shows what they
mean and marks mistakes if the file's first line names the schema:

```yaml
# yaml-language-server: $schema={address}/study.json
name: my-study
```

{files}

## Outputs

{outputs}
"""


def page() -> str:
    """Returns the page."""
    files = [(f"[{name}.json](schemas/{name}.json)", sentence(title)) for name, (_, title) in YAML_FILES.items()]
    outputs = [(f"[{name}.json](schemas/{name}.json)", sentence(title)) for name, (_, title) in OUTPUTS.items()]
    heading = ("schema", "describes")
    text = _TEXT.format(address=ADDRESS, files=table(heading, files), outputs=table(heading, outputs))
    return f"{NOTICE}\n\n{text}"
