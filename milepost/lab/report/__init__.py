"""The report of any lab run: what it was about decides which document is built."""

from __future__ import annotations

from pathlib import Path

from milepost.draw import Document
from milepost.draw.folder import write_report
from milepost.lab.report import image, image_runs, read, signal, text
from milepost.lab.report.runs import Results
from milepost.measure.results import Results as Shown


def load(folder: str | Path) -> Results:
    """The results in a folder, of whatever modality."""
    results, file = read.read(folder), str(Path(folder) / "results.json")
    about = read.modality(results)
    check = image_runs.check if about == "image" else signal.check if about in signal.KINDS else read.check
    return Shown("lab", check(results, file), document)


def document(results: Results, *, wide: bool = True) -> Document:
    """What a run says; ``wide``: a terminal has room for intervals."""
    about = read.modality(results)
    if about == "image":
        return image.document(results, wide)
    return signal.document(results) if about in signal.KINDS else text.document(results, wide)


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    return write_report(Path(folder), document(results))
