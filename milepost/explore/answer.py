"""Answer: from a query to plain data. The page, the command and the tests all ask here.

    a query     view, the encoding's spec, what was moved (``set.0.base=500000.0``), the view's controls, lang, width
    an answer   spec, controls, figures (numbers and SVG), a sentence, formulas with their references

What can't be done is a ValueError in one sentence, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unicodedata import category

from milepost.draw import Figure, alone, draw, few
from milepost.draw.picture import png
from milepost.encoding import Encoding, parts_of
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import summarise
from milepost.explore import arguments, specs
from milepost.explore.seeded import seeded
from milepost.explore.view import Control, Shown, number
from milepost.explore.views import VIEWS
from milepost.explore.words import PageWords
from milepost.maps import NAMES as MAPS
from milepost.measure.results import provenance

ALWAYS = ("encoding", "lang", "width")
"""What may be asked of every view."""
LONGEST = 8192
"""Characters of an address, and so of all that is typed."""
ROOM, GAP = 860, 32
"""Pixels of a column from which on figures stand in pairs, and between the two."""
KINDS = {"csv": "text/csv", "json": "application/json", "png": "image/png", "svg": "image/svg+xml"}
"""What a figure is saved as."""


@dataclass(frozen=True)
class ViewedQuery:
    """A query as it was understood, and what the view shows for it."""

    spec: str
    enc: Encoding
    asked: dict[str, Any]
    controls: list[Control]
    shown: Shown
    width: int


def view_query(view: str, query: Mapping[str, str]) -> ViewedQuery:
    """Read a query and compute its view."""
    if view not in VIEWS:
        raise ValueError(f"there is no view {view[:40]!r}; there are {', '.join(VIEWS)}")
    _check_characters(query)
    made, words = VIEWS[view], PageWords(query.get("lang", "en"))
    known = {control.name: control for control in made.CONTROLS}
    for name in query:
        if name not in ALWAYS and name not in known and not name.startswith("set."):
            raise ValueError(
                f"view {view} has nothing called {name[:40]!r} to set; it has {', '.join((*ALWAYS, *known))}"
            )
    changes = {name.removeprefix("set."): value for name, value in query.items() if name.startswith("set.")}
    asked = {name: control.read(query[name]) if name in query else control.value for name, control in known.items()}
    width = int(number("width", query.get("width", "640"), whole=True))
    sizes = getattr(made, "SIZES", specs.SIZES)
    with seeded():
        spec = specs.moved(query.get("encoding", made.ENCODINGS[0]), changes)
        enc = specs.built(spec, sizes)
    shown = made.show(enc, asked, words)
    own = [
        c for c in arguments.controls(enc) if sizes is specs.SIZES or c.name.rsplit(".", 1)[-1] not in sizes
    ]  # a view's own sizes stay
    return ViewedQuery(spec, enc, asked, own, shown, width)


def _check_characters(query: Mapping[str, str]) -> None:
    """Refuse what no figure can show: control characters, halves of pairs, and what Unicode says is no character."""
    for name, value in query.items():
        for letter in f"{name}{value}":
            if (category(letter) in ("Cc", "Cs") and letter not in "\t\n\r") or ord(letter) & 0xFFFE == 0xFFFE:
                raise ValueError(
                    f"{name[:40]!r} has the character U+{ord(letter):04X}, which can't be shown; leave it out"
                )


def answer(view: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Everything that a view shows for a query, as plain data."""
    viewed = view_query(view, query)
    return {
        "view": view,
        "spec": viewed.spec,
        "encoding": repr(viewed.enc),
        "controls": [asdict(control) for control in viewed.controls],
        "asked": viewed.asked,
        "sentence": viewed.shown.sentence[:1].upper() + viewed.shown.sentence[1:],
        "table": [list(row) for row in viewed.shown.table],
        "pages": _pages(viewed.enc, viewed.shown.modules),
        "figures": [figure.to_json() for figure in viewed.shown.figures],
        "svg": [
            draw(figure, wide)
            for figure, wide in zip(viewed.shown.figures, widths(viewed.shown.figures, viewed.width), strict=True)
        ],
    }


def file(view: str, kind: str, query: Mapping[str, str]) -> str | bytes:
    """One figure (``figure=0``) to keep, as csv, json, png or svg."""
    if kind not in KINDS:
        raise ValueError(f"a figure is saved as {', '.join(KINDS)}, got {kind[:20]!r}")
    which = int(number("figure", query.get("figure", "0"), whole=True))
    viewed = view_query(view, {name: value for name, value in query.items() if name != "figure"})
    if not 0 <= which < len(viewed.shown.figures):
        raise ValueError(f"view {view} has figures 0 to {len(viewed.shown.figures) - 1} here, got figure={which}")
    figure = viewed.shown.figures[which]
    if kind == "csv":
        return figure.to_csv()
    if kind in ("svg", "png"):
        drawn = alone(draw(figure, widths(viewed.shown.figures, viewed.width)[which]))
        return drawn if kind == "svg" else png(drawn, aside=True)
    about = provenance(view=view, encoding=repr(viewed.enc), asked=viewed.asked)
    return json.dumps({**figure.to_json(), "provenance": about}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def widths(figures: Sequence[Figure], column: int) -> list[int]:
    """How wide each figure is drawn in a column of the page.

    Two stand in a row where there is room; clocks, and a figure that is alone, take all of it.
    """
    many = sum(figure.kind != "dials" for figure in figures) > 1
    return [(column - GAP) // 2 if many and column >= ROOM and figure.kind != "dials" else column for figure in figures]


def start(language: str) -> dict[str, Any]:
    """What a page wants to know before it asks: words, and every view with its encodings and controls."""
    views = {
        name: {"encodings": list(made.ENCODINGS), "controls": [asdict(control) for control in made.CONTROLS]}
        for name, made in VIEWS.items()
    }
    return {"words": PageWords(language).starting("page."), "language": language, "views": views, "longest": LONGEST}


def light(found: dict[str, Any]) -> dict[str, Any]:
    """An answer as a page gets it: numbers that are only shown under the pointer, with few digits."""
    return {**found, "figures": [{**figure, **_rounded(figure)} for figure in found["figures"]]}


def _rounded(figure: dict[str, Any]) -> dict[str, Any]:
    lines = {name: few(values) for name, values in (figure["lines"] or {}).items()}
    return {"z": list(map(few, figure["z"])), "lines": lines}


def _pages(enc: Encoding, modules: tuple[str, ...]) -> list[dict[str, str]]:
    """Title, formula and reference: of each term, of its scaling, and of what the view itself computes."""
    names = []
    for part in parts_of(enc):
        name = type(part).spec_name()
        if name in NAMES or name in SPACE:
            names.append(f"encodings.{name}")
        elif name in MAPS:
            names.append(f"maps.{name}")
        scaling = getattr(part, "scaling", None)
        if scaling is not None and type(scaling).__module__.startswith("milepost.scaling."):
            names.append(type(scaling).__module__.removeprefix("milepost."))
    return [{"module": name, **summarise(name)} for name in dict.fromkeys((*names, *modules))]
