"""The report of an image lab. From results.json alone."""

from __future__ import annotations

from milepost.draw import Document, Section, Table
from milepost.lab.report import image_figures as figures
from milepost.lab.report import image_tables as tables
from milepost.lab.report.image_answer import QUESTION, answer, notes
from milepost.lab.report.image_runs import measured, plain
from milepost.lab.report.runs import Results
from milepost.lab.report.text import AGAIN, failed

TITLE = "Trained at one size, tested at others"
AGAINST = {"nope": "no position at all", "learned": "the learned 1-D table"}


def document(results: Results, wide: bool = True) -> Document:
    """The parts of a report, each where there is something to show."""
    title = "accuracy by height x width, pixels"
    short, full = Table(*tables.size_table(results), title), Table(*tables.seed_table(results), title)
    brief = Section("", figures=[figures.mean_by_size(results)], tables=[short])
    return Document(
        TITLE, answer(results), QUESTION, sections=_sections(results), notes=notes(results),
        terminal_tables=[full if wide else short], inline=[brief],
    )  # fmt: skip


def _sections(results: Results) -> list[Section]:
    sections = [_accuracy(results)] if measured(results) else []
    if drawn := figures.maps(results):
        words = (
            "What the framed patch is to every other on the trained grid; choose it from the list, or click on it. "
            "The encoding "
            "alone: how alike the codes of two places are, the logit of a vector of ones with itself after both were "
            "turned, or "
            "the bias. Attention: the weights of the trained model, over test images. Means over layers and heads."
        )
        sections.append(Section("Similarity maps", words, drawn))
    if plain(results):
        words = "Of training, on this machine, with trials side by side: small differences of speed are chance."
        sections.append(Section("Cost", words, tables=[Table(*tables.cost_table(results))]))
    done = Section("Protocol and provenance", AGAIN, tables=[Table(*tables.provenance_table(results["provenance"]))])
    return [*sections, *failed(results), done]


def _accuracy(results: Results) -> Section:
    words = (
        "The same test images at every size; patches keep their number of pixels, so that a larger image has more of "
        "them. Bands "
        "are 95% intervals. In brackets, points gained or lost against the trained size. linear: places squeezed or "
        "stretched "
        "onto the trained grid."
    )
    folded = {
        "Each seed, with 95% intervals": tables.seed_table(results),
        "Loss, nats an image": tables.loss_table(results),
        **{
            f"Against {name}, in points of accuracy: paired differences with 95% intervals": table
            for encoding, name in AGAINST.items() if (table := tables.comparison_table(results, encoding))[1]
        },
    }  # fmt: skip
    more = [Table(*table, title, fold=True) for title, table in folded.items()]
    return Section("Accuracy by size", words, [figures.by_size(results)], [Table(*tables.size_table(results)), *more])
