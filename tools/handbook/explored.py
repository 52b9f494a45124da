"""The page of the explorer: each view at a state worth seeing, with the command that opens it.

Words, numbers and pictures are the views' own.
"""

from __future__ import annotations

import shlex
from functools import cache

from milepost.draw.figure import Figure
from milepost.explore.answer import ViewedQuery, view_query
from milepost.explore.views import VIEWS
from milepost.explore.words import table

TRIED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "code": (
        ("binary(width=8)", "sinusoidal"),
        {"length": "64"},
        "Bits jump, waves do not: beside each other it is plain why one came after the other.",
    ),
    "distance": (
        ("rope", "rope(base=500000.0)"),
        {},
        "With the larger base likeness falls more slowly, and neighbours are less different.",
    ),
    "clocks": (
        ("rope",),
        {"trained": "4096", "target": "32768"},
        "Move the target: the clocks that turn red have never been where they are asked to go.",
    ),
    "slopes": (
        ("alibi(heads=16)",),
        {},
        "More heads make the steps between reaches smaller, and the first one nearer; the last one stays where it is.",
    ),
    "buckets": (("t5",), {}, "Every distance on one stair is the same to the model."),
    "scalings": (
        ("rope",),
        {"trained": "4096", "target": "32768"},
        "Which one keeps the fast pairs, and which leaves no new angles? Not all do both.",
    ),
    "plane": (
        ("axial", "mixed"),
        {},
        "Turned along the axes alone, a place is like its row and its column; with mixed directions it is not.",
    ),
    "attention": (
        ("rope", "sinusoidal"),
        {"change": "shifted"},
        "All positions later by sixteen: who knows distances alone does not notice.",
    ),
    "permute": (("nope", "rope"), {}, "Type a sentence of your own. With the causal mask on, nope notices, too."),
}
"""For each view: encodings, settings, and what to look at."""


@cache
def shown(view: str) -> list[ViewedQuery]:
    """The view as its command opens it, one answer for each encoding."""
    encodings, values, _ = TRIED[view]
    return [view_query(view, {**values, "encoding": spec}) for spec in encodings]


def command(view: str) -> str:
    """What opens it."""
    encodings, values, _ = TRIED[view]
    words = [word for spec in encodings for word in ("--encoding", spec)] + [
        word for name, value in values.items() for word in ("--set", f"{name}={value}")
    ]
    return shlex.join(["milepost", "explore", "--view", view, *words])


def said(view: str) -> str:
    """The page's own sentences: one where it says the same of all encodings."""
    told = {
        spec: one.shown.sentence[:1].upper() + one.shown.sentence[1:]
        for spec, one in zip(TRIED[view][0], shown(view), strict=True)
    }
    return (
        next(iter(told.values()))
        if len(set(told.values())) == 1
        else " ".join(f"`{spec}`: {sentence}" for spec, sentence in told.items())
    )


def drawn() -> dict[str, list[Figure]]:
    """The pictures of each view and encoding, by the name of the figure."""
    return {f"explore-{view}-{n}": list(one.shown.figures) for view in VIEWS for n, one in enumerate(shown(view))}


def page() -> str:
    """explore.md of the handbook."""
    words = table("en")
    parts = ["# Pictures that move", INTRO]
    for view in VIEWS:
        encodings, _, look = TRIED[view]
        pictures = [f"![{spec}](figures/explore-{view}-{n}.svg)" for n, spec in enumerate(encodings)]
        parts += [
            f"## {words[f'page.view.{view}']}",
            words[f"page.intro.{view}"],
            f"```\n{command(view)}\n```",
            *pictures,
            f"{said(view)} {look}",
        ]
    return "\n\n".join(parts) + "\n"


INTRO = """The figures of this handbook stand still. `milepost explore` opens a page in your browser on which they move:
choose an encoding, drag its arguments,
and see what becomes of it. Below is each view at one state, with the command that opens it there, and what the
page says to it.

```
milepost explore
```

- Two encodings stand side by side, each with its own sliders. Any spec can be typed, sums included.
- The address is the state: *Copy link* gives somebody else what you see. `--json` prints the numbers and serves
  nothing.
- Each figure downloads as PNG, SVG, CSV and JSON, the last with versions and settings; formulas and references
  stand below it.
- Arrow keys read a figure out, cell by cell or point by point. `--lang zh` begins in Chinese.
- The page is served to this machine alone, by Python's own server, and loads nothing from elsewhere. `--share`
  serves it to others, too.

The folder `milepost/explore/space` holds the two files of a Hugging Face Space that runs this page for everybody."""
