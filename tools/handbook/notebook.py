"""A notebook as a page: its words, its code, and what it printed or drew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from milepost.draw.svg import in_a_page


def markdown(path: Path) -> str:
    """The notebook at ``path`` as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [f"*A notebook: `docs/notebooks/{path.name}`.*"]
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    if parts[1].startswith("# "):
        parts[0], parts[1] = parts[1], parts[0]  # the title comes first
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```" if output["name"] == "stdout" else ""
    data = output.get("data", {})
    for kind, place in (("image/svg+xml", "panels"), ("text/html", "shown")):
        if kind in data:
            return f'<div class="{place}" markdown="0">{in_a_page("".join(data[kind]))}</div>'
    return f"```text\n{''.join(data['text/plain'])}\n```" if "text/plain" in data else ""
