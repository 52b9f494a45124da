"""Results that are dear to compute and small to keep: a file of JSON each, in a folder of the user's cache.

$XDG_CACHE_HOME/milepost/families/hy_v4-<digest>.json, else ~/.cache/milepost/...
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def folder(kind: str) -> Path:
    """Where results of one kind are kept."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "milepost" / kind


def read(file: Path) -> Any:
    """What was kept; None where there is nothing, or the file is damaged."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def write(file: Path, data: Any) -> None:
    """Keep it whole, or not at all; a place that can't be written to costs no answer."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".part", delete=False, encoding="utf-8") as part:
            json.dump(data, part)
        os.replace(part.name, file)
    except OSError:
        return
