"""The folder of a report: report.html, report.md and the data that they draw, all of them or nothing.

Never in a model's own folder.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.measure.results import write, write_json

if TYPE_CHECKING:
    from milepost.draw.document import Document


def check_folder(out: Path, model: str) -> None:
    """Refuse a folder that holds something, or that is in the model's own, before anything is run."""
    place = out.expanduser().resolve()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"--out {out} is there already, and not an empty folder: name another, or remove it")
    check_outside(out, model)


def check_outside(out: Path, model: str) -> None:
    """Refuse a folder that is in the model's own."""
    place, source = out.expanduser().resolve(), Path(model).expanduser()
    if source.is_dir() and (source.resolve() == place or source.resolve() in place.parents):
        raise ValueError(f"--out {out} is inside of the model's folder, which is never written to: name another")


def save_folder(out: Path, name: str, data: dict[str, Any], document: Document) -> Path:
    """Write ``name``.json, report.md and report.html into ``out``, which is not there, or empty; gives the page."""
    out = out.expanduser()
    out.parent.mkdir(parents=True, exist_ok=True)
    work = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        fill(work, name, data, document)
        if out.exists():
            out.rmdir()  # empty: see check_folder
        os.replace(work, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return out / "report.html"


def fill(folder: Path, name: str, data: dict[str, Any], document: Document) -> Path:
    """Write ``name``.json, report.md and report.html into a folder that is being made; gives the page."""
    write_json(folder / f"{name}.json", data)
    return write_report(folder, document)[0]


def write_report(folder: Path, document: Document) -> list[Path]:
    """Write report.html and report.md."""
    return [write(folder / "report.html", document.html()), write(folder / "report.md", document.markdown())]
