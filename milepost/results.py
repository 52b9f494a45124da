"""What was measured, as plain data with provenance. No torch, no drawing."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

WATCHED = ("milepost", "torch", "numpy", "transformers", "x-transformers", "rotary-embedding-torch", "accelerate", "safetensors", "scikit-learn", "pillow")


def provenance(**protocol: Any) -> dict[str, Any]:
    """Versions, machine and date, with what the caller says of its protocol: enough to do it again."""
    versions = {}
    for name in WATCHED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "versions": versions,
        "protocol": protocol,
    }


def write(path: str | Path, content: str | bytes) -> Path:
    """Write a file whole or not at all: under a temporary name first, then renamed. Makes the folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_json(path: str | Path, data: Any) -> Path:
    """`write` for plain data; refuses NaN, which is no JSON."""
    return write(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
