"""What a notebook shows of an encoding, a scaling or a RopeSpec. `milepost.shown` asks for it by their classes."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from milepost.draw import Document, Figure, Section
from milepost.encoding import Encoding, Sum
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import summarise
from milepost.maps import NAMES as MAPS
from milepost.portrait.figures import portrait
from milepost.rope import RopeSpec, report
from milepost.rope.analysis import analyse
from milepost.scaling import Scaling
from milepost.spectrum import geometric

LENGTH = 64
"""Positions in the picture of an encoding."""


@singledispatch
def document(thing: Any) -> Document:
    """What is shown of a thing."""
    raise TypeError(f"a notebook shows encodings, scalings and RopeSpecs, got {type(thing).__name__}")


@document.register
def _(enc: Encoding) -> Document:
    """Its spec, its picture over the first positions, and the formulas of its pages."""
    parts: list[Any] = list(enc.parts) if isinstance(enc, Sum) else [enc]
    names = [type(part).spec_name() for part in parts]
    pages = [
        _formula(f"{'maps' if name in MAPS else 'encodings'}.{name}")
        for name in names
        if name in {**NAMES, **SPACE, **MAPS}
    ]
    try:
        drawn = portrait(enc, LENGTH).figures
    except ValueError as error:  # an encoding of your own may have no picture
        return Document(repr(enc), sentences=[str(error)], inline=pages)
    return Document(repr(enc), inline=[Section("", figures=drawn), *pages])


@document.register
def _(scaling: Scaling) -> Document:
    """Its spec, its formula, and what it leaves of the frequencies of a head of 64 channels with base 10000."""
    home = type(scaling).__module__.removeprefix("milepost.")
    pages = [_formula(home)] if home.startswith("scaling.") else []
    if scaling.length_dependent:
        words = "another one for each length: .at(length) gives the plain scaling"
        return Document(repr(scaling), sentences=[words], inline=pages)
    plain = geometric(64)
    try:
        left = [new / old for new, old in zip(scaling(plain).frequencies, plain.frequencies, strict=True)]
    except ValueError as error:  # made for another number of pairs
        return Document(repr(scaling), sentences=[str(error)], inline=pages)
    pairs = [float(pair) for pair in range(len(left))]
    title = "Share of each frequency that is kept, base 10000"
    figure = Figure("lines", title, "pair", "new / plain", pairs, lines={"kept": left}, low=0.0, high=1.0)
    return Document(repr(scaling), inline=[Section("", figures=[figure]), *pages])


@document.register
def _(spec: RopeSpec) -> Document:
    """What it says and where that comes from, and the turns of each pair where the lengths are known."""
    analysis = [] if spec.trained is None else [kind.to_json() for kind in analyse(spec)]
    return report.document({"spec": spec.to_json(), "analysis": analysis})


def _formula(home: str) -> Section:
    page = summarise(home)
    return Section(page["title"], page["reference"], code=page["formula"], fold=True)
