"""Notebook: how encodings, specs and results look there, as HTML that needs no script: `obj._repr_html_()`.

Asked for by name at the moment when something is shown (`shown`). It is the one door through which the parts below reach up to those that draw:
they know its name, and import nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import told
from milepost.maps import NAMES as MAPS
from milepost.report.figure import Figure, Mark, of_panel
from milepost.report.fragment import pictures, table

if TYPE_CHECKING:
    from milepost.encoding import Encoding
    from milepost.portrait import Portrait
    from milepost.rope import RopeSpec
    from milepost.rope.analysis import Analysis
    from milepost.scaling import Scaling
    from milepost.testing import Verdicts

LENGTH = 64
"""Positions in the picture of an encoding."""


def encoding(enc: Encoding) -> str:
    """Its spec, its picture over the first positions, and the formulas of its pages."""
    from milepost.encoding import Sum
    from milepost.portrait import portrait

    parts: list[Encoding] = list(enc.parts) if isinstance(enc, Sum) else [enc]  # type: ignore[arg-type]
    names = [type(part).spec_name() for part in parts]
    homes = [f"{'maps' if name in MAPS else 'encodings'}.{name}" for name in names if name in NAMES or name in SPACE or name in MAPS]
    try:
        found = portrait(enc, LENGTH)
    except ValueError as error:  # an encoding of your own may have no picture
        return pictures(repr(enc), [], [str(error)], [told(home) for home in homes])
    return pictures(repr(enc), [of_panel(panel) for panel in found.panels], [], [told(home) for home in homes])


def portrait_of(found: Portrait) -> str:
    """The panels."""
    return pictures(found.encoding, [of_panel(panel) for panel in found.panels], [], [])


def scaling(one: Scaling) -> str:
    """Its spec, its formula, and what it keeps of the frequencies of a head of 64 channels with base 10000."""
    from milepost.spectrum import geometric

    home = type(one).__module__.removeprefix("milepost.")
    pages = [told(home)] if home.startswith("scaling.") else []
    if one.length_dependent:
        return pictures(repr(one), [], ["another one for each length: .at(length) gives the plain scaling"], pages)
    plain = geometric(64)
    try:
        kept = [u / w for u, w in zip(one(plain).frequencies, plain.frequencies, strict=True)]
    except ValueError as error:  # made for another number of pairs
        return pictures(repr(one), [], [str(error)], pages)
    pairs = [float(i) for i in range(len(kept))]
    figure = Figure("lines", "Share of each frequency that is kept, base 10000", "pair", "new / plain", pairs, lines={"kept": kept}, low=0.0, high=1.0)
    return pictures(repr(one), [figure], [], pages)


def spec(found: RopeSpec) -> str:
    """What it says and where that comes from, and the turns of each pair where the lengths are known."""
    from milepost.rope.analysis import analyse

    data = found.to_json()
    rows = []
    for kind in data["kinds"]:
        label, rope = "" if kind["kind"] == "all" else f"{kind['kind']} ({kind['layers']} layers): ", kind["rope"]
        words = {} if rope is None else {name: value for name, value in rope.items() if value is not None}
        rows += [[label + name, str(value), _source(data, kind["kind"], name)] for name, value in words.items()] or [[label, "no rotation", ""]]
    rows += [[f"{name} length", str(data[name]), _source(data, "", name)] for name in ("trained", "scaled", "served") if data[name] is not None]
    said = table(data["model"] or "RopeSpec", ["", "value", "from"], rows, data["notes"])
    return said if found.trained is None else said + "".join(map(analysis, analyse(found)))


def _source(data: dict[str, dict[str, str]], kind: str, name: str) -> str:
    sources = data["sources"]
    return sources.get(f"{kind}.{name}", sources.get(name, ""))


def analysis(one: Analysis) -> str:
    """The sentence, and the turns of each pair over both lengths; red where an angle was never seen."""
    pairs = [float(p.pair) for p in one.pairs]
    lines = {
        f"over the trained {one.trained}": [p.turns or None for p in one.pairs],
        f"at {one.target}": [p.target_turns or None for p in one.pairs],
        "angles never seen": [p.target_turns if p.unseen else None for p in one.pairs],
    }
    red = ("angles never seen",)
    full = (Mark("y", 1.0, "one full turn"),)
    figure = Figure("lines", "Turns of each pair", "pair", "turns", pairs, lines=lines, points=red, red=red, marks=full, log_y=True)
    return pictures("", [figure], [one.sentence], [])


def lab(found: dict[str, Any]) -> str:
    """What a run of the lab measured."""
    from milepost.report.lab_any import fragment

    return fragment(found)


def choice(found: dict[str, Any]) -> str:
    """A ranked choice."""
    from milepost.report.choice import fragment

    return fragment(found)


def claims(rows: list[dict[str, Any]]) -> str:
    """Claims with their verdicts, evidence and figures."""
    from milepost.report.claims import fragment

    return fragment(rows)


def verdicts(found: Verdicts) -> str:
    """A row for each law."""
    rows = [[verdict.word, verdict.law, verdict.sentence, verdict.detail] for verdict in found.verdicts]
    return table(f"{found.encoding}: {'every law holds' if found.ok else 'a law is broken'}", ["", "law", "", ""], rows, [])
