"""What was measured, as plain data with provenance. No torch, no drawing."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

WATCHED = (
    "milepost",
    "torch",
    "numpy",
    "transformers",
    "x-transformers",
    "rotary-embedding-torch",
    "accelerate",
    "safetensors",
    "scikit-learn",
    "pillow",
)


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
        "processor": _processor(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "versions": versions,
        "protocol": protocol,
    }


def _processor() -> str:
    """The processor's own name where Linux tells it, else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()


def plain_fields(result: Any) -> dict[str, Any]:
    """The fields of a dataclass of plain data; tuples are lists, as in JSON."""
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


class Pictured:
    """Plain data that a notebook shows as a document: the one that ``document`` builds of it.

    ``name`` says what the data is.
    """

    def __init__(self, name: str, data: Any, document: Callable[[Any], Any]):
        super().__init__(data)  # type: ignore[call-arg]
        self.name, self.document = name, document

    def _repr_html_(self) -> str:
        return str(self.document(self).fragment())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In IPython's words, which a notebook keeps beside the picture: what is in it, and not all of it."""
        inside = ", ".join(self) if isinstance(self, dict) else f"{len(self)} rows"  # type: ignore[arg-type]
        printer.text(f"<{self.name}: {inside}>")


class Results(Pictured, dict[str, Any]):
    """A document of results: a dict like any other, but for its looks."""


class Rows(Pictured, list[dict[str, Any]]):
    """A list of rows, likewise."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name to write ``path`` under, so that it is written whole or not at all. Makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: str | Path, content: str | bytes) -> Path:
    """Write a file whole or not at all."""
    with whole_file(path := Path(path)) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_json(path: str | Path, data: Any) -> Path:
    """`write` for plain data; refuses NaN, which is no JSON."""
    return write(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
