"""The report of a lab run: one page that works offline, and the same tables in Markdown. From results.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.measure.results import write
from milepost.report import lab_figures as figures
from milepost.report import lab_tables as tables
from milepost.report.lab_answer import QUESTION, answer, notes
from milepost.report.lab_page import page
from milepost.report.lab_read import Results, joined, load, load_all
from milepost.report.lab_runs import helped, lost, plain, texts
from milepost.report.markdown import in_markdown, markdown

TITLE = "Train short, test long"


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    folder = Path(folder)
    found = sections(results)
    drawn = page(TITLE, QUESTION, answer(results), notes(results), found)
    return [write(folder / "report.html", drawn), write(folder / "report.md", text(results, found))]


def sections(results: Results) -> list[dict[str, Any]]:
    """The parts of a report, each where there is something to show: a title, words, figures, a table, and more tables that fold away."""
    found = [*(_losses(results) if texts(results) else []), *_looks(results), *_beside(results)]
    if lost(results):
        found.append({"title": "Failed or missing", "words": "Trials that gave no numbers, and why.", "table": tables.lost_table(results)})
    parts = results.get("joined") or [{"from": "", "provenance": results["provenance"]}]
    for part in parts:
        title = "Protocol and provenance" + (f" of {part['from']}" if part["from"] else "")
        found.append({"title": title, "words": "What was done, so that it can be done again.", "table": tables.provenance_table(part["provenance"])})
    return found


def _losses(results: Results) -> list[dict[str, Any]]:
    targets = results["provenance"]["protocol"]["targets"]
    several = len({run["seed"] for run in texts(results)}) > 1
    found: list[dict[str, Any]] = [
        {
            "title": "Loss by length",
            "words": f"The same last {targets} tokens of each test text, read with more and more context before them: only the context differs. "
            f"Loss in nats a token{', mean over seeds in the table and each seed as a line' if several else ''}; bands are 95% intervals. "
            "In brackets, the change against the trained length.",
            "figures": [figures.by_length(results)],
            "table": tables.length_table(results),
            "more": [
                ("Each seed, with 95% intervals", *tables.seed_table(results)),
                ("As perplexity / bits per byte", *tables.unit_table(results)),
                ("Measured in three ways", *tables.protocol_loss_table(results)),
            ],
        }
    ]
    if any(run.get("loss_by_position") for run in texts(results)):
        words = "What is lost on the tokens at each place of one long text, with all before them as context. Strategies are set for the whole text."
        found.append({"title": "Loss by position", "words": words, "figures": [figures.by_position(results)]})
    if helped(results):
        words = (
            "What can be done to a trained model at test time, set against the same model with nothing done to it, on the same tokens. "
            "A gain above 0 is better. The cost is what a short text pays when the strategy is set for the longest. "
            "In brackets, 95% intervals of paired differences."
        )
        found.append({"title": "Strategies", "words": words, "figures": [figures.strategies(results)], "table": tables.strategy_table(results)})
    return found


def _looks(results: Results) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if any(run.get("attention") for run in results["runs"]):
        words = "The share of each head's attention that goes so many tokens back. The dotted line is the trained length: to its right, distances never seen."
        more = [("Mean distance, number of keys and first token", *tables.attention_table(results))]
        found.append({"title": "How far heads look", "words": words, "figures": [figures.attention(results)], "more": more})
    if any(run.get("tasks") for run in results["runs"]):
        words = (
            "Small languages in which place or distance decides the answer; each model was trained on the task at the trained length. "
            "Loss in nats an answer, with the share of right answers in brackets; chance knows the language and not the place."
        )
        found.append({"title": "Tasks", "words": words, "figures": figures.tasks(results), "table": tables.task_table(results)})
    return found


def _beside(results: Results) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if plain(results):
        words = "Of training, on this machine, with trials side by side: small differences of speed are chance. `milepost bench` measures them one by one."
        found.append({"title": "Cost", "words": words, "table": tables.cost_table(results)})
    if any(run.get("disjoint") for run in plain(results)):
        words = (
            "Perplexity over perplexity at the trained length, in windows without overlap. Published: WikiText-103, 247 M parameters, trained at 512 "
            "(Press et al., 2022, table 2). Numbers do not carry over between set-ups; the order of the encodings may."
        )
        table = tables.published_table(results)
        found.append({"title": "Beside what was published", "words": words, "figures": [figures.published(results)], "table": table})
    return found


def text(results: Results, found: list[dict[str, Any]] | None = None) -> str:
    """The report in Markdown, with tables to paste."""
    return in_markdown(TITLE, QUESTION, answer(results), notes(results), sections(results) if found is None else found)


__all__ = ["TITLE", "answer", "joined", "load", "load_all", "markdown", "notes", "save", "sections", "text"]
