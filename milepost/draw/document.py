"""Document: what was found, as a title, an answer, sentences, sections of words, figures and tables, and notes.

Whoever has results builds one; here it becomes a page that works offline (`html`), text to paste (`markdown`), lines
for a terminal (`terminal`), or a piece of a notebook without script and style (`fragment`).

The page forbids itself to fetch anything (its Content-Security-Policy). Its templates escape all words, and the
numbers of figures travel as JSON in which no "<" is left, so that no name can end a script.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.draw import markdown
from milepost.draw.figure import Figure
from milepost.draw.svg import draw
from milepost.draw.svg.heat import levels, palette, scale
from milepost.draw.svg.shapes import look, swatch
from milepost.draw.table import Table, is_number

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

WIDE, HALF, NARROW, INLINE = 940, 460, 356, 460
"""Pixels of a figure alone in its row of a page, of two side by side, of one on a phone, and of one in a notebook."""
LEVELS, SIGNS = 36 * 36 - 1, "0123456789abcdefghijklmnopqrstuvwxyz"
"""Steps from the lowest to the highest number of the maps that a page holds, each in two signs."""


@dataclass(frozen=True)
class Section:
    """A part of a document. ``facts`` are names with what they say; ``status`` is a verdict that a page can show alone.

    ``group`` is a heading that sections share. ``fold`` hides the section behind its title in a notebook.
    """

    title: str
    words: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    code: str = ""
    facts: Sequence[tuple[str, str]] = ()
    chinese: str = ""
    status: str = ""
    group: str = ""
    anchor: str = ""
    fold: bool = False

    def labels(self) -> list[dict[str, str]]:
        """The entries of the legend that the figures have in common: a label, its group, and a swatch; none where
        nothing differs.
        """
        entries: dict[str, dict[str, str]] = {}
        for figure in self.figures:
            for label, first in figure.labels().items():
                if len(figure.labels()) > 1 or len(self.figures) > 1:
                    mark = look(figure, first)
                    dots = figure.kind != "lines" or first in figure.points
                    drawn = mark.points((11, 6)) if dots else swatch(mark, 0, 6)
                    entries.setdefault(label, {"label": label, "group": figure.style(first).group, "swatch": drawn})
        return list(entries.values())


@dataclass(frozen=True)
class Document:
    """What was found. ``ok`` says whether all is well, where that is the question.

    ``terminal_tables`` are those that a terminal shows, and ``inline`` are the sections that a notebook does.
    """

    title: str
    answer: str = ""
    question: str = ""
    sentences: Sequence[str] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    ok: bool | None = None
    terminal_tables: Sequence[Table] = ()
    inline: Sequence[Section] = ()

    def html(self) -> str:
        """A page of its own: one file that works offline, on a phone, in both colour schemes."""
        counts = Counter(section.status for section in self.sections if section.status)
        groups: dict[str, list[dict[str, Any]]] = {}
        for number, section in enumerate(self.sections):
            groups.setdefault(section.group, []).append(_shown(section, section.anchor or f"part-{number}"))
        files = {
            name: (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")
            for name in ("page.css", "figures.js", "report.js")
        }
        return str(
            _template("page.html").render(document=self, groups=groups, counts=counts, files=files, is_number=is_number)
        )

    def fragment(self) -> str:
        """HTML for a notebook: no script, no style sheet; words take the notebook's own ink."""
        drawn = [
            {"section": section, "drawn": [draw(figure, INLINE) for figure in section.figures]}
            for section in self.inline
        ]
        return str(_template("fragment.html").render(document=self, sections=drawn))

    def markdown(self, picture: Callable[[Section], str] = lambda section: "", *, folded: bool = True) -> str:
        """Text to paste: every word and every table, ``folded`` ones too; with a picture of each section where there
        is one.
        """
        return markdown.document(self, picture, folded)

    def terminal(self) -> Iterator[RichTable | Text]:
        """Tables, notes, sentences, and the answer last."""
        from milepost.draw import terminal

        yield from terminal.document(self)


def _shown(section: Section, anchor: str) -> dict[str, Any]:
    wide = (
        WIDE
        if len(section.figures) == 1 or any(figure.alternatives for figure in section.figures if not figure.view)
        else HALF
    )
    figures = [
        {
            "drawn": (("wide", draw(figure, wide, legend=False)), ("narrow", draw(figure, NARROW, legend=False))),
            "view": figure.view,
            "data": _data(figure),
        }
        for figure in section.figures
    ]
    return {"section": section, "anchor": anchor, "figures": figures, "labels": section.labels()}


def _data(figure: Figure) -> str:
    data = figure.to_pointer()
    if figure.alternatives:
        low, high, colours = scale(figure)
        data["palette"] = palette(colours).hex()
        data["alternatives"] = [
            {
                "label": alternative.label,
                "z": [packed(row) for row in levels(alternative.z, low, high, LEVELS)],
                "notes": alternative.notes,
                "cell": alternative.cell,
            }
            for alternative in figure.alternatives
        ]
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def facts(provenance: Mapping[str, Any], protocol: str = "protocol") -> Section:
    """What was done and with what, so that it can be done again: the last section of most documents."""
    rows = [
        *provenance.get(protocol, {}).items(),
        *((name, value) for name, value in provenance.items() if name != protocol),
    ]
    return Section(
        "Protocol and provenance", tables=[Table(["", ""], [[str(name), str(value)] for name, value in rows])]
    )


def packed(levels: Sequence[int | None]) -> str:
    """A row of levels as text, two signs for each: a page holds many maps."""
    return "".join(".." if level is None else SIGNS[level // 36] + SIGNS[level % 36] for level in levels)


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader

    return Environment(
        loader=PackageLoader("milepost.draw", "page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)
