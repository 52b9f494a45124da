"""The report of a diagnosis: the verdict first, then each measure with its figure and table."""

from __future__ import annotations

from typing import Any

from milepost.checkpoints.diagnosis import report_figures as figures
from milepost.checkpoints.diagnosis import report_tables as tables
from milepost.draw import Cells, Document, Section, Table

Row = dict[str, Any]
QUESTION = (
    "Where does this model break, how sharply, and why? Everything here was measured on the text that was given, in "
    "nats "
    "a token; bands are 95% intervals."
)
KINDS = {
    "words": "a sentence with a pass key is put into the text, and asked for",
    "passage": "a passage is put into the text and begun again",
}
AGAIN = "What was done, so that it can be done again."


def document(data: Row) -> Document:
    """Each measure where there is something to show."""
    brief = [Table(*tables.length_table(data), "loss of the same last tokens, nats a token")]
    if data["retrieval"]["cells"]:
        title = f"retrieval by depth and length (chance {data['retrieval']['chance']:.0%})"
        brief.append(Table(*tables.retrieval_table(data), title))
    return Document(
        f"diagnose {data['model']}",
        answer(data),
        QUESTION,
        sections=sections(data),
        notes=notes(data),
        ok=data["onset"] is None,
        terminal_tables=brief,
        inline=[Section("", figures=[figures.by_position(data)], tables=brief)],
    )


def answer(data: Row) -> str:
    """The two sentences that matter."""
    return " ".join(data["verdict"][:2])


def notes(data: Row) -> list[str]:
    """What else was found, the rule behind the cause, and what to know before believing it."""
    rule = [f"The rule behind the cause: {data['cause']['rule']}."] if data["cause"] else []
    return [*data["verdict"][2:], *rule, *[f"{note[0].upper()}{note[1:]}." for note in data["notes"]]]


def sections(data: Row) -> list[Section]:
    """The parts of a report, each where there is something to show."""
    protocol = data["protocol"]
    words = (
        f"The loss of the tokens at each place of a long text: {protocol['loss_by_position']}. "
        f"Failing is {protocol['onset']}."
    )
    made = [
        Section(
            "Loss by position",
            words,
            [figures.by_position(data)],
            [_folded("Every bucket", tables.position_table(data))],
        )
    ]
    words = f"The same tokens: {protocol['loss_by_length']}, so that only the context differs."
    if data["disjoint"]:
        words = f"Two protocols. {words} Without overlap: {protocol['disjoint']}."
    made.append(Section("Loss by length", words, [figures.by_length(data)], [Table(*tables.length_table(data))]))
    if data["shifted"]:
        words = (
            f"{_capital(protocol['shifted'])}. What rises here comes from the positions themselves, "
            "not from more context."
        )
        made.append(
            Section("The same passage elsewhere", words, [figures.shifted(data)], [Table(*tables.shifted_table(data))])
        )
    if data["retrieval"]["cells"]:
        how, chance = KINDS[data["retrieval"]["kind"]], data["retrieval"]["chance"]
        words = f"{_capital(how)} at its end; {protocol['retrieval']}. Chance is {chance:.0%}."
        made.append(Section("Retrieval", words, figures.retrieval(data), [Table(*tables.retrieval_table(data))]))
    made += _heads(data) if data["attention"] else []
    if data["pairs"]:
        words = (
            "How often each pair of channels turns. A pair that made less than a full turn in training, and goes "
            "farther, meets "
            "angles that it never saw."
        )  # fmt: skip
        made.append(
            Section("Rotary pairs", words, [figures.pairs(data)], [_folded("Every pair", tables.pair_table(data))])
        )
    if data["drift"]:
        made.append(
            Section(
                "Cached against uncached", f"{_capital(protocol['drift'])}.", tables=[Table(*tables.drift_table(data))]
            )
        )
    return [*made, Section("Protocol and provenance", AGAIN, tables=[Table(*tables.protocol_table(data))])]


def _heads(data: Row) -> list[Section]:
    far = f"The share of each head's attention that goes so many tokens back; of {data['protocol']['attention']}."
    every = "Entropy of the weights, the first token's share, and the mean distance, of each layer and head."
    return [
        Section("How far heads look", far, figures.attention(data), [Table(*tables.layer_table(data))]),
        Section("Every head", every, figures.heads(data), [_folded("As a table", tables.attention_table(data))]),
    ]


def _folded(title: str, cells: Cells) -> Table:
    return Table(*cells, title, fold=True)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
