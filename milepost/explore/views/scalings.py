"""Scalings: what PI, NTK, YaRN and Llama 3 do to every frequency of a RoPE, side by side.

The numbers come from `milepost.rope.analysis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from milepost.draw import Figure, Mark
from milepost.encoding import Encoding
from milepost.explore.view import Shown, slider
from milepost.explore.views.clocks import spec_of
from milepost.explore.words import PageWords
from milepost.rope.analysis import Analysis, analyse

ENCODINGS = ("rope",)
CONTROLS = (slider("trained", 2048, 64, 131072, log=True), slider("target", 8192, 64, 1048576, log=True))
METHODS: dict[Literal["linear", "ntk", "yarn", "llama3"], str] = {
    "linear": "PI",
    "ntk": "NTK",
    "yarn": "YaRN",
    "llama3": "llama3",
}


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The share of each frequency that is kept, the turns at the target length, and a table.

    A scaling that the rope has is replaced.
    """
    trained, target = asked["trained"], asked["target"]
    plain = spec_of(enc, trained)
    bare = replace(plain, kinds=(("all", replace(plain.main, scaling=None)),))
    analyses: dict[str, Analysis] = {words.say("scalings.none"): analyse(bare, target)[0]}
    for method, name in METHODS.items():
        analyses[name] = analyse(plain.extended(target, method), target)[0]
    pairs = [float(p.pair) for p in next(iter(analyses.values())).pairs]
    resolutions = {name: [p.resolution for p in analysis.pairs] for name, analysis in analyses.items()}
    met = {name: [p.target_turns or None for p in analysis.pairs] for name, analysis in analyses.items()}
    new = {
        words.say("scalings.unseen", name=name): [p.target_turns if p.unseen else None for p in analysis.pairs]
        for name, analysis in analyses.items()
        if analysis.unseen_pairs
    }
    pair = words.phrase("pair")
    figures = (
        Figure(
            "lines",
            words.say("scalings.kept"),
            pair,
            words.say("scalings.share"),
            pairs,
            lines=resolutions,
            low=0.0,
            high=1.0,
        ),
        Figure(
            "lines",
            words.say("scalings.turns", target=target),
            pair,
            words.say("scalings.turns_axis"),
            pairs,
            lines={**met, **new},
            points=tuple(new),
            red=tuple(new),
            log_y=True,
            marks=(Mark("y", 1.0, words.say("scalings.full")),),
        ),
    )
    names = tuple(
        words.say(f"scalings.{column}") for column in ("method", "unseen_pairs", "fastest", "slowest", "temperature")
    )
    rows = tuple(
        (
            name,
            f"{len(analysis.unseen_pairs)} / {len(analysis.pairs)}",
            f"{analysis.local_resolution:.3f}",
            f"{analysis.pairs[-1].resolution:.3f}",
            f"{analysis.temperature:.4f}",
        )
        for name, analysis in analyses.items()
    )
    sentence = words.say("scalings.sentence", trained=trained, target=target, factor=f"{target / trained:g}")
    return Shown(figures, sentence, tuple(f"scaling.{method}" for method in METHODS), (names, *rows))
