"""The report of an image lab: one page that works offline, and the same tables in Markdown. From results.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.measure.results import write
from milepost.report import image_figures as figures
from milepost.report import image_tables as tables
from milepost.report.image_answer import QUESTION, answer, notes
from milepost.report.image_runs import measured, plain
from milepost.report.lab_page import page
from milepost.report.lab_runs import Results, lost
from milepost.report.lab_tables import lost_table
from milepost.report.markdown import in_markdown

TITLE = "Trained at one size, tested at others"
AGAINST = {"nope": "no position at all", "learned": "the learned 1-D table"}


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    folder, found = Path(folder), sections(results)
    said = (TITLE, QUESTION, answer(results), notes(results), found)
    return [write(folder / "report.html", page(*said)), write(folder / "report.md", in_markdown(*said))]


def sections(results: Results) -> list[dict[str, Any]]:
    """The parts of a report, each where there is something to show."""
    found: list[dict[str, Any]] = []
    if measured(results):
        compared = [
            (f"Against {words}, in points of accuracy: paired differences with 95% intervals", *table)
            for encoding, words in AGAINST.items() if (table := tables.comparison_table(results, encoding))[1]
        ]  # fmt: skip
        found.append(
            {
                "title": "Accuracy by size",
                "words": "The same test images at every size; patches keep their number of pixels, so that a larger image has more of them. Bands are 95% "
                "intervals. In brackets, points gained or lost against the trained size. linear: places squeezed or stretched onto the trained grid.",
                "figures": [figures.by_size(results)],
                "table": tables.size_table(results),
                "more": [("Each seed, with 95% intervals", *tables.seed_table(results)), ("Loss, nats an image", *tables.loss_table(results)), *compared],
            }
        )
    if drawn := figures.maps(results):
        words = (
            "What the marked patch is to every other on the trained grid; choose it from the list, or click on it. The encoding alone: how alike the codes of "
            "two places are, the logit of a vector of ones with itself after both were turned, or the bias. Attention: the weights of the trained model, "
            "over test images. Means over layers and heads."
        )
        found.append({"title": "Similarity maps", "words": words, "figures": drawn})
    if plain(results):
        words = "Of training, on this machine, with trials side by side: small differences of speed are chance."
        found.append({"title": "Cost", "words": words, "table": tables.cost_table(results)})
    if lost(results):
        found.append({"title": "Failed or missing", "words": "Trials that gave no numbers, and why.", "table": lost_table(results)})
    words = "What was done, so that it can be done again."
    return [*found, {"title": "Protocol and provenance", "words": words, "table": tables.provenance_table(results["provenance"])}]
