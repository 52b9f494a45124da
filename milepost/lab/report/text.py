"""The report of a lab run on text. From results.json alone."""

from __future__ import annotations

from milepost.draw import Document, Section, Table
from milepost.lab.report import figures, tables
from milepost.lab.report.answer import QUESTION, answer, notes
from milepost.lab.report.evidence.patterns import UNKNOWN, patterns
from milepost.lab.report.evidence.ranks import rank_table
from milepost.lab.report.runs import Results, helped, lengths, lost, plain, texts
from milepost.lab.report.seeds import as_shown

TITLE = "Train short, test long"


def document(results: Results, wide: bool = True) -> Document:
    """The parts of a report, each where there is something to show."""
    title = "loss, nats a token (change against the trained length)"
    shown = [Table(*tables.length_table(results), title)]
    brief = list(shown)
    if helped(results):
        title = "strategies: nats a short text pays, and nats gained beyond the trained length"
        shown.append(Table(*tables.strategy_table(results, intervals=wide), title))
        brief.append(Table(*tables.strategy_table(results, intervals=False), title))
    return Document(
        TITLE, answer(results), QUESTION, notes=notes(results), sections=sections(results), terminal_tables=shown,
        inline=[Section("", figures=[figures.mean_by_length(results)], tables=brief)],
    )  # fmt: skip


def sections(results: Results) -> list[Section]:
    """Losses, what heads and tasks show, cost, what failed, and what was done."""
    shown = [
        *(_losses(results) if texts(results) else []),
        *_looks(results),
        *_patterns(results),
        *_beside(results),
        *failed(results),
    ]
    for part in results.get("joined") or [{"from": "", "provenance": results["provenance"]}]:
        title = "Protocol and provenance" + (f" of {part['from']}" if part["from"] else "")
        shown.append(Section(title, AGAIN, tables=[Table(*tables.provenance_table(part["provenance"]))]))
    return shown


AGAIN = "What was done, so that it can be done again."


def failed(results: Results) -> list[Section]:
    """Trials without numbers, where there are any."""
    words = "Trials that gave no numbers, and why."
    return [Section("Failed or missing", words, tables=[Table(*tables.lost_table(results))])] if lost(results) else []


def _patterns(results: Results) -> list[Section]:
    words = (
        "What papers found about the order and the shape of losses, and whether these models show it. A FAIL is a "
        "reason to doubt this run before the paper: too few tokens, too small a model, another kind of text."
    )
    if not any(pattern.status != UNKNOWN for pattern in patterns(results)):
        return []
    return [Section("Published patterns", words, tables=[Table(*tables.pattern_table(results))])]


def _overview(results: Results) -> list[Section]:
    """All encodings in one table, where their costs were measured one by one."""
    if not results.get("costs") or not plain(results):
        return []
    about = results["costs"]["about"]
    words = (
        "Each encoding with nothing done to it: nats a token at the trained length (mean over seeds, with the ends of "
        "all their 95% intervals over files), how far it is behind the best on the same tokens of the same seeds, and "
        "its loss beyond. Costs are times over those of a model without positions, taken in turns on one core: "
        f"a training step, a text of {lengths(results)[-1]} tokens read at once, and a token after as many in the "
        f"cache ({about}). A click on a column's head sorts by it."
    )
    return [Section("All encodings", words, tables=[Table(*tables.overview_table(results))])]


def _losses(results: Results) -> list[Section]:
    targets = results["provenance"]["protocol"]["targets"]
    several = len({run["seed"] for run in texts(results)}) > 1
    many = as_shown(results) is not results
    seeds = (
        f", mean over seeds in the table and {'in the figure' if many else 'each seed as a line'}" if several else ""
    )
    bands = "hold the 95% intervals of every seed" if several and many else "are 95% intervals"
    words = (
        f"The same last {targets} tokens of each test text, read with more and more context before them: only the "
        f"context differs. Loss in nats a token{seeds}; bands {bands}. In brackets, the change against the trained "
        "length."
    )
    folded = [
        Table(*tables.seed_table(results), "Each seed, with 95% intervals", fold=True),
        Table(*tables.unit_table(results), "As perplexity / bits per byte", fold=True),
        Table(*tables.protocol_loss_table(results), "Measured in three ways", fold=True),
    ]
    paired = Table(*tables.paired_table(results), "Nats behind on the same tokens, 95% over files")
    all_tables = [*[paired] * bool(paired.rows), Table(*tables.length_table(results)), *folded]
    sections = [*_overview(results), Section("Loss by length", words, [figures.by_length(results)], all_tables)]
    second = Table(*tables.length_table(results, "second_by_length"))
    if second.rows:
        source = results["provenance"]["protocol"]["text"]["second"]["source"]
        words = (
            f"The same models on {source}, a text of which nothing was trained on. Losses of two texts are not to be "
            "compared with each other, but how they grow with the length is."
        )
        sections.append(Section("On a second text", words, tables=[second]))
    if any(run.get("loss_by_position") for run in texts(results)):
        words = (
            "The loss of the tokens at each place of one long text, with all before them as context. Strategies are "
            "set for the "
            "whole text."
        )  # fmt: skip
        sections.append(Section("Loss by position", words, [figures.by_position(results)]))
    if helped(results):
        words = (
            "What can be done to a trained model at test time, set against the same model with nothing done to it, on "
            "the same "
            "tokens. A gain above 0 is better. The cost is what a short text pays when the strategy is set for the "
            "longest. "
            "In brackets, 95% intervals of paired differences."
        )
        sections.append(
            Section("Strategies", words, figures.strategies(results), [Table(*tables.strategy_table(results))])
        )
    return sections


def _looks(results: Results) -> list[Section]:
    sections = []
    if any(run.get("attention") for run in results["runs"]):
        words = (
            "The share of each head's attention that goes so many tokens back. The dotted line is the trained length: "
            "to its "
            "right, distances never seen."
        )  # fmt: skip
        table = Table(*tables.attention_table(results), "Mean distance, number of keys and first token", fold=True)
        sections.append(Section("How far heads look", words, figures.attention(results), [table]))
    if any(run.get("tasks") for run in results["runs"]):
        words = (
            "Small languages in which place or distance decides the answer; each model was trained on the task at the "
            "trained "
            "length. Loss in nats an answer, with the share of right answers in brackets; chance knows the language "
            "and not the "
            "place."
        )
        sections.append(Section("Tasks", words, figures.tasks(results), [Table(*tables.task_table(results))]))
    ranked = Table(*rank_table(results))
    if len(ranked.rows) > 1:
        words = (
            "Problems of any size up to the trained length were trained on; here are those of twice that length, by "
            "the share of texts in which every token of the answer is right. Published: models of 110 M parameters on "
            "ten tasks (Kazemnejad et al., 2023, arXiv:2305.19466)."
        )
        sections.append(Section("Length generalisation", words, tables=[ranked]))
    return sections


def _beside(results: Results) -> list[Section]:
    sections = []
    if plain(results):
        words = (
            "Of training, on this machine, with trials side by side: small differences of speed are chance. `milepost "
            "bench` measures them one by one. What doubling the tokens would still take away is read off each model's "
            "own curve; differences smaller than that are not settled."
        )
        sections.append(Section("Cost", words, tables=[Table(*tables.cost_table(results))]))
    if any(run.get("disjoint") for run in plain(results)):
        words = (
            "Perplexity over perplexity at the trained length, in windows without overlap. Published: WikiText-103, "
            "247 M "
            "parameters, trained at 512 (Press et al., 2022, table 2). Numbers do not carry over between set-ups; the "
            "order of "
            "the encodings may."
        )
        table = Table(*tables.published_table(results))
        sections.append(Section("Beside what was published", words, [figures.published(results)], [table]))
    return sections
