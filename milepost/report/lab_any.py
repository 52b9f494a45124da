"""The report of any lab run: what it was about decides which page is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from milepost.measure.results import Results as Document
from milepost.report import image, image_answer, image_runs, image_tables, lab, lab_answer, lab_read, lab_runs, lab_tables, signal, signal_runs
from milepost.report.figure import Figure, Mark
from milepost.report.fragment import pictures, table
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
    check = image_runs.check if about == "image" else signal_runs.check if about in signal_runs.KINDS else lab_read.check
    return Document("lab", check(found, file))


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    about = lab_read.modality(results)
    if about == "image":
        return image.save(results, folder)
    return signal.save(results, folder) if about in signal_runs.KINDS else lab.save(results, folder)


def fragment(results: Results) -> str:
    """The answer, a picture and the tables as HTML, for a notebook."""
    said, about = terminal(results, wide=False), lab_read.modality(results)
    drawn = [] if about in signal_runs.KINDS else [by_size(results) if about == "image" else by_length(results)]
    return pictures("", drawn, [said.answer, *said.notes], []) + "".join(table(*one, []) for one in said.tables)


def by_length(results: Results) -> Figure:
    """Loss of the same tokens against the length of the text, mean over seeds."""
    lengths, trained = lab_runs.lengths(results), lab_runs.trained(results)
    lines = {label: [lab_runs.mean_loss(runs, n) for n in lengths] for label, runs in lab_runs.by_name(lab_runs.texts(results)).items()}
    marks = (Mark("x", trained, f"trained, {trained}"),) if lengths[0] <= trained <= lengths[-1] else ()
    title = f"Loss of the same last {results['provenance']['protocol']['targets']} tokens"
    return Figure("lines", title, "tokens that are read", "nats a token", lengths, lines=lines, log_x=True, marks=marks)


def by_size(results: Results) -> Figure:
    """Accuracy against the size of the image, mean over seeds."""
    sizes, home = image_runs.sizes(results), image_runs.by(image_runs.trained(results))
    lines = {label: [image_runs.mean(runs, size) for size in sizes] for label, runs in lab_runs.by_name(image_runs.measured(results)).items()}
    names = tuple(map(image_runs.by, sizes))
    return Figure("lines", f"Right answers, trained at {home}", "pixels", "share", [float(n) for n in range(len(sizes))], lines=lines, x_names=names)


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
