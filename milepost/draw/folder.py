"""The files of a report: report.html, report.md and their data, in a folder that `measure.folder` makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.measure.results import write, write_json

if TYPE_CHECKING:
    from milepost.draw.document import Document


def fill(folder: Path, name: str, data: dict[str, Any], document: Document) -> Path:
    """Write ``name``.json, report.md and report.html into a folder that is being made; gives the page."""
    write_json(folder / f"{name}.json", data)
    return write_report(folder, document)[0]


def write_report(folder: Path, document: Document) -> list[Path]:
    """Write report.html and report.md."""
    return [write(folder / "report.html", document.html()), write(folder / "report.md", document.markdown())]
