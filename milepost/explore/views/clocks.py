"""Clocks: each pair of a RoPE as a clock, with its wavelength against the trained and the target length.

The numbers come from `milepost.rope.analysis`. The arc is the part of a full turn that a pair went through over the
trained length. Angles beyond that, which it meets at the target length and which training has not seen, are red. A full
circle has seen every angle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milepost.draw import Dial, Figure, Mark
from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.analysis import analyse

ENCODINGS = ("rope",)
CONTROLS = (slider("trained", 2048, 16, 131072, log=True), slider("target", 8192, 16, 1048576, log=True))
MOST = 64
"""Dials that are drawn; with more pairs, every so many-th."""


def spec_of(enc: Encoding, trained: int) -> RopeSpec:
    """A RoPE as a model of one kind of layer."""
    if not isinstance(enc, RoPE) or enc.partial != "prefix":
        raise ValueError(f"this view shows the pairs of one rope (with partial='prefix'), got {enc!r}; choose rope")
    assert enc.head_dim is not None
    rope = LayerRope(enc.head_dim, enc.base, enc.rotary or enc.head_dim, enc.pairing, enc.scaling)
    return RopeSpec((("all", rope),), trained=trained)


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The dials, and wavelengths on a logarithmic axis with both lengths across."""
    trained, target = asked["trained"], asked["target"]
    analysis = analyse(spec_of(enc, trained), target)[0]
    every = -(-len(analysis.pairs) // MOST)
    seen, unseen = words.say("clocks.seen", trained=trained), words.say("clocks.unseen", target=target)
    dials = tuple(
        Dial(words.say("clocks.pair", pair=p.pair), _wave(p.wavelength, words), p.turns, p.target_turns, p.unseen)
        for p in analysis.pairs[::every]
    )
    pairs = [float(p.pair) for p in analysis.pairs]
    lines = {
        words.say("clocks.wavelength"): [p.wavelength for p in analysis.pairs],
        unseen: [p.wavelength if p.unseen else None for p in analysis.pairs],
    }
    figures = (
        Figure("dials", words.say("clocks.title"), dials=dials, points=(seen,), red=(unseen,)),
        Figure(
            "lines",
            words.say("clocks.waves"),
            words.phrase("pair"),
            words.phrase("tokens"),
            pairs,
            lines=lines,
            points=(unseen,),
            red=(unseen,),
            log_y=True,
            marks=(
                Mark("y", trained, words.say("clocks.trained", trained=trained)),
                Mark("y", target, words.say("clocks.target", target=target)),
            ),
        ),
    )
    return Shown(figures, words.phrase(analysis.sentence) + words.say("page.stop"), ("rope.analysis",))


def _wave(tokens: float | None, words: PageWords) -> str:
    """A wavelength in few letters."""
    if tokens is None:
        return "∞"
    by, letter = next(
        ((by, letter) for by, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if tokens >= 10 * by), (1.0, "")
    )
    return f"{tokens / by:.{max(0, 2 - int(math.log10(tokens / by)))}f}{letter} {words.say('clocks.unit')}"
