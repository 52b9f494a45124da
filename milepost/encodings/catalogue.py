"""The catalogue: what each page of encodings/ and maps/ says of itself, read from its source.

No torch, so that lists come at once.

A page's docstring holds a title, an indented formula, a reference, and lines such as "Mechanism: ..."; its class holds
the hooks that it overrides and the properties that it declares. A test holds this reading against the imported classes.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from milepost.checks import nearest
from milepost.draw import Table
from milepost.encodings import NAMES, RENAMED, SPACE
from milepost.hooks import HOOKS
from milepost.maps import NAMES as MAPS

KNOWN = (*NAMES, *SPACE, *MAPS)
"""Every name that a spec may use."""
FIELDS = ("Mechanism", "Information", "Prior", "Content", "Storage", "Used by")
SHORT = {
    "shift_invariant": "shift-invariant",
    "toeplitz": "Toeplitz",
    "causal_only": "causal only",
    "rotation": "rotation",
    "length_dependent": "length-dependent",
    "content_dependent": "content-dependent",
}
"""Properties that a table names."""
DECLARED = {
    "shift_invariant": True,
    "toeplitz": True,
    "causal_only": False,
    "rotation": False,
    "length_dependent": False,
    "negative": True,
    "fractional": True,
}
"""Declarations and what they are where a page is silent."""


@dataclass(frozen=True)
class Page:
    """One encoding, as its file describes it."""

    name: str
    cls: str
    title: str
    formula: str
    reference: str
    departure: str
    points: tuple[str, ...]
    properties: dict[str, bool]
    arguments: dict[str, str]
    facts: dict[str, str]

    def row(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self) | {"points": list(self.points), "measured": measured(self.name)}

    def acts(self) -> str:
        """Where it acts, in words."""
        return ", ".join(self.points) or "nowhere"

    def properties_in_words(self) -> str:
        """The properties that it has."""
        return ", ".join(word for name, word in SHORT.items() if self.properties[name])


@cache
def page(name: str) -> Page:
    """The page of an encoding or a map by its name in specs: the file's, and the class's in lower case."""
    if name in RENAMED:
        now, fixed = RENAMED[name]
        asked = ", ".join(f"{word}={value!r}" for word, value in fixed.items())
        raise ValueError(f"{name} is called {now}({asked}) now: ask for {now}")
    if name not in KNOWN:
        raise ValueError(f"unknown encoding {name!r}{nearest(name, KNOWN)}; known: {', '.join(KNOWN)}")
    folder = Path(__file__).parents[1] / ("maps" if name in MAPS else "encodings")
    tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
    body = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.lower() == name.replace("_", "")
    )
    methods = {node.name: node for node in body.body if isinstance(node, ast.FunctionDef)}
    declared = dict(DECLARED)
    for node in body.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in DECLARED:
            declared[node.targets[0].id] = ast.literal_eval(node.value)
    points = tuple(hook for hook in HOOKS if hook in methods)
    declared["cacheable"] = not declared["length_dependent"]
    declared["content_dependent"] = bool({"rescore", "output", "spread", "gate", "weigh", "relate"} & set(points))
    return Page(
        name,
        body.name,
        **_docstring(ast.get_docstring(tree) or ""),
        points=points,
        properties=declared,
        arguments=_arguments(methods),
    )


@cache
def summarise(module: str) -> dict[str, str]:
    """Title, formula and reference in the docstring of a module, such as "scaling.yarn"; "" where it has none."""
    text = (Path(__file__).parents[1] / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    parts = _docstring(ast.get_docstring(ast.parse(text)) or "")
    return {
        **{name: parts[name] for name in ("formula", "reference")},
        "title": parts["title"].splitlines()[0].rstrip("."),
    }


def measured(name: str) -> dict[str, str]:
    """What was measured of an encoding and ships with the package, as sentences; nothing where nothing was."""
    path = Path(__file__).parents[1] / "measured" / "bench.json"
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    mine = [r for r in rows if r["scheme"] == name and r["implementation"] == "milepost" and r["ratio"] is not None]
    ratios = [f"{r['pass']} {r['ratio']:.2f} ({r['length']})" for r in mine]
    return {"cost": f"time / no position: {', '.join(ratios)}"} if ratios else {}


def pages() -> tuple[Page, ...]:
    """All pages, in the order of ``encodings.NAMES``, then ``encodings.SPACE``."""
    return tuple(page(name) for name in NAMES | SPACE)


def _arguments(methods: dict[str, ast.FunctionDef]) -> dict[str, str]:
    """Each argument with its default as text; "" where it must be given."""
    if "__init__" not in methods:
        return {}
    given = methods["__init__"].args
    defaults = [""] * (len(given.args) - 1 - len(given.defaults)) + [ast.unparse(d) for d in given.defaults]
    return dict(zip((a.arg for a in given.args[1:]), defaults, strict=True))


def _docstring(text: str) -> dict[str, Any]:
    blocks = re.split(r"\n\s*\n", text)
    formula = "\n".join(block for block in blocks[1:] if block.startswith("    "))
    facts, departure, reference = {}, "", ""
    for block in blocks[1:]:
        words = " ".join(block.split())
        if block.startswith("Departure:"):
            departure = words.removeprefix("Departure:").strip()
        elif block.startswith("Mechanism:"):
            for line in block.splitlines():
                field, _, value = line.partition(":")
                facts[field.strip()] = value.strip()
        elif not block.startswith("    ") and not reference and re.search(r"arXiv:|\b(19|20)\d\d\b", words):
            reference = words
    dedented = "\n".join(line.removeprefix("    ") for line in formula.splitlines())
    return {
        "title": blocks[0].strip().rstrip("."),
        "formula": dedented,
        "reference": reference,
        "departure": departure,
        "facts": facts,
    }


# -- tables of `milepost list` -------------------------------------------------------------------------------------


def listed(pages: Sequence[Page]) -> Table:
    """Every encoding in a row."""
    rows = []
    for page in pages:
        given = ", ".join(name if not default else f"{name}={default}" for name, default in page.arguments.items())
        rows.append([page.name, page.acts(), page.properties_in_words(), given, page.reference])
    return Table(["encoding", "acts at", "properties", "arguments", "reference"], rows)


def side_by_side(pages: Sequence[Page]) -> Table:
    """A few encodings in columns, one question a row."""
    rows = [["acts at", *(page.acts() for page in pages)]]
    rows += [[field.lower(), *(page.facts.get(field, "") for page in pages)] for field in FIELDS]
    rows.append(["properties", *(page.properties_in_words() for page in pages)])
    for question in ("extrapolation", "cost"):
        answers = [measured(page.name).get(question, "") for page in pages]
        if any(answers):
            rows.append([f"measured {question}", *(answer or "not measured yet" for answer in answers)])
    rows.append(["reference", *(page.reference for page in pages)])
    return Table(["", *(page.title for page in pages)], rows, ruled=True)
