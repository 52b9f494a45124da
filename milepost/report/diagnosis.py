"""The report of a diagnosis: the verdict first, then each measure with its figure and table; in the terminal, as report.md and as report.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report import diagnosis_figures as figures
from milepost.report import diagnosis_tables as tables
from milepost.report.figure import Figure, Mark
from milepost.report.folder import save_folder
from milepost.report.fragment import pictures
from milepost.report.lab import markdown as table_to_paste
from milepost.report.lab_page import page as lab_page
from milepost.report.tables import plain

Row = dict[str, Any]
QUESTION = (
    "Where does this model break, how sharply, and why? Everything here was measured on the text that was given, in nats a token; bands are 95% intervals."
)


def answer(data: Row) -> str:
    """The two sentences that matter."""
    return " ".join(data["verdict"][:2])


def notes(data: Row) -> list[str]:
    """What else was found, the rule behind the cause, and what to know before believing it."""
    rule = [f"The rule behind the cause: {data['cause']['rule']}."] if data["cause"] else []
    return [*data["verdict"][2:], *rule, *[f"{note[0].upper()}{note[1:]}." for note in data["notes"]]]


def sections(data: Row) -> list[dict[str, Any]]:
    """The parts of a report, each where there is something to show."""
    said = data["protocol"]
    found: list[dict[str, Any]] = [
        {
            "title": "Loss by position", "words": f"What is lost on the tokens at each place of a long text: {said['loss_by_position']}. {_onset(data)}",
            "figures": [figures.by_position(data)], "more": [("Every bucket", *tables.position_table(data))],
        },
        {
            "title": "Loss by length",
            "words": f"Two protocols. The same tokens: {said['loss_by_length']}, so that only the context differs. Without overlap: {said['disjoint']}.",
            "figures": [figures.by_length(data)], "table": tables.length_table(data),
        },
    ]  # fmt: skip
    if data["shifted"]:
        words = f"{_capital(said['shifted'])}. What rises here comes from the positions themselves, not from more context."
        found.append({"title": "The same passage elsewhere", "words": words, "figures": [figures.shifted(data)], "table": tables.shifted_table(data)})
    if data["retrieval"]["cells"]:
        kind = {
            "words": "a sentence with a pass key is put into the text, and asked for at its end",
            "passage": "a passage is put into the text and begun again",
        }
        words = f"{kind[data['retrieval']['kind']]} at its end; {said['retrieval']}. Chance is {data['retrieval']['chance']:.0%}."
        found.append({"title": "Retrieval", "words": words, "figures": [figures.retrieval(data)], "table": tables.retrieval_table(data)})
    if data["attention"]:
        words = f"The share of each head's attention that goes so many tokens back; of {said['attention']}."
        found.append({"title": "How far heads look", "words": words, "figures": [figures.attention(data)], "table": tables.layer_table(data)})
        words = "Entropy of the weights, the first token's share, and the mean distance, of each layer and head."
        found.append({"title": "Every head", "words": words, "figures": [figures.heads(data)], "more": [("As a table", *tables.attention_table(data))]})
    if data["pairs"]:
        words = "How often each pair of channels turns. A pair that made less than a full turn in training, and goes farther, meets angles that it never saw."
        found.append({"title": "Rotary pairs", "words": words, "figures": [figures.pairs(data)], "more": [("Every pair", *tables.pair_table(data))]})
    if data["drift"]:
        found.append({"title": "Cached against uncached", "words": f"{_capital(said['drift'])}.", "table": tables.drift_table(data)})
    found.append({"title": "Protocol and provenance", "words": "What was done, so that it can be done again.", "table": tables.protocol_table(data)})
    return found


def _onset(data: Row) -> str:
    return f"Failing is {data['protocol']['onset']}."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def terminal(data: Row) -> Iterator[Table | Text]:
    """The verdict, loss by length and retrieval."""
    yield Text(answer(data), "bold red" if data["onset"] is not None else "bold green")
    for sentence in data["verdict"][2:]:
        yield Text(sentence)
    yield Text("")
    yield plain(*tables.length_table(data), title="loss of the same last tokens, nats a token")
    if data["retrieval"]["cells"]:
        yield Text("")
        yield plain(*tables.retrieval_table(data), title=f"retrieval by depth and length (chance {data['retrieval']['chance']:.0%})")
    for note in data["notes"]:
        yield Text(f"note: {note}", "yellow")


def markdown(data: Row) -> str:
    """report.md: the verdict, then every table that has a place there."""
    parts = [f"# diagnose {_safe(data['model'])}", _safe(answer(data)), "\n".join(f"- {_safe(note)}" for note in notes(data))]
    for section in sections(data):
        held = [section["table"]] if "table" in section else [(head, rows) for _, head, rows in section["more"]]
        parts += [f"## {section['title']}", _safe(section["words"]), *[table_to_paste(head, rows) for head, rows in held]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _safe(words: str) -> str:
    return " ".join(words.replace("&", "&amp;").replace("<", "&lt;").split())


def page(data: Row) -> str:
    """report.html, self-contained."""
    return lab_page(f"diagnose {data['model']}", QUESTION, answer(data), notes(data), sections(data))


def fragment(data: Row) -> str:
    """The verdict, loss by position as a picture, and two tables as HTML, for a notebook."""
    from jinja2 import Environment

    shown = [("Loss by length", *tables.length_table(data))]
    if data["retrieval"]["cells"]:
        shown.append((f"Retrieval (chance {data['retrieval']['chance']:.0%})", *tables.retrieval_table(data)))
    drawn = pictures("", [by_position(data)], [], [])
    made = Environment(autoescape=True).from_string(_FRAGMENT)
    return made.render(model=data["model"], verdict=data["verdict"], drawn=drawn, tables=shown, notes=data["notes"])


def by_position(data: Row) -> Figure:
    """Loss at each place with the trained length and the onset, for a notebook."""
    rows = data["loss_by_position"]
    places, last = [(row["start"] + row["end"]) / 2 for row in rows], rows[-1]["end"] if rows else 0
    known = (("trained length", data["trained_length"]), ("fails from here", data["onset"]))
    marks = tuple(Mark("x", at, name) for name, at in known if at is not None and at < last)
    lines = {"loss": [row["loss"] for row in rows]}
    return Figure("lines", "Loss at each place of a long text", "place in the text, tokens", "nats a token", places, lines=lines, marks=marks)


_FRAGMENT = """<h3>{{ model }}</h3><ul>{% for sentence in verdict %}<li>{{ sentence }}</li>{% endfor %}</ul>{{ drawn | safe }}
{% for title, head, rows in tables %}<table><caption>{{ title }}</caption><thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead><tbody>
{%- for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody></table>{% endfor %}
{% for note in notes %}<p>{{ note }}</p>{% endfor %}"""


def save(data: Row, out: Path) -> Path:
    """Write report.html, report.md and diagnosis.json into ``out``: all three, or nothing."""
    return save_folder(out, "diagnosis", data, markdown(data), page(data))
