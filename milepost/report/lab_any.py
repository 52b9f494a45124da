"""The report of any lab run: what it was about decides which page is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from milepost.report import image, image_answer, image_runs, image_tables, lab, lab_answer, lab_read, lab_tables, signal, signal_runs
from milepost.report.lab_runs import Results, helped

Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class Said:
    """What a terminal shows: tables with their titles, the answer, and notes."""

    tables: list[tuple[str, list[str], list[list[str]]]]
    answer: str
    notes: list[str]


def load(folder: str | Path) -> Results:
    """The results in a folder, of whatever modality."""
    found, file = lab_read.read(folder), str(Path(folder) / "results.json")
    about = lab_read.modality(found)
    if about == "image":
        return image_runs.check(found, file)
    return signal_runs.check(found, file) if about in signal_runs.KINDS else lab_read.check(found, file)


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    about = lab_read.modality(results)
    if about == "image":
        return image.save(results, folder)
    return signal.save(results, folder) if about in signal_runs.KINDS else lab.save(results, folder)


def terminal(results: Results, *, wide: bool = True) -> Said:
    """The tables of a run, its answer, and what to know before believing it; ``wide``: intervals have room."""
    about = lab_read.modality(results)
    if about == "image":
        shown = image_tables.seed_table(results) if wide else image_tables.size_table(results)
        return Said([("accuracy by height x width, pixels", *shown)], image_answer.answer(results), image_answer.notes(results))
    if about in signal_runs.KINDS:
        return Said([("every axis", *signal.axis_table(results))], signal.answer(results), signal.notes(results))
    found = [("loss, nats a token (change against the trained length)", *lab_tables.length_table(results))]
    if helped(results):
        shown = lab_tables.strategy_table(results, intervals=wide)
        found.append(("strategies: nats a short text pays, and nats gained beyond the trained length", *shown))
    return Said(found, lab_answer.answer(results), lab_answer.notes(results))
