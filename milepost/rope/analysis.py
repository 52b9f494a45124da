"""Analysis: what a rope does at a length, pair by pair, before any token is run.

    turns over the trained length    trained * w_i / 2π         w: the frequencies that the model was trained with
    unseen angles                    a pair that made less than a full turn in training, and goes farther at the target
    the critical pair                the first that made less than a full turn in training
    local resolution                 w'_i / w_i: how far apart neighbours are still turned, against training
    alias distance                   the longest wavelength: from there on every pair has been through a full turn
    temperature                      what logits are multiplied by

Numbers only: `rope.report` draws them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from milepost.rope import LayerRope, RopeSpec, report


@dataclass(frozen=True)
class Pair:
    """One pair of channels. Frequencies are in radians a token.

    ``turns`` are over the trained length, ``target_turns`` over the target length.
    """

    pair: int
    trained_frequency: float
    frequency: float
    wavelength: float | None
    turns: float
    target_turns: float
    resolution: float
    unseen: bool


@dataclass(frozen=True)
class Analysis:
    """One kind of layer at one target length."""

    kind: str
    layers: int
    trained: int
    target: int
    base: float
    rotary: int
    head_dim: int
    pairing: str
    scaling: str
    temperature: float
    critical_pair: int | None
    unseen_pairs: tuple[int, ...]
    local_resolution: float
    alias_distance: float | None
    pairs: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the sentence."""
        pairs = {"unseen_pairs": list(self.unseen_pairs), "pairs": [asdict(pair) for pair in self.pairs]}
        return asdict(self) | pairs | {"sentence": self.sentence}

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return report.analysis_document(self.to_json()).fragment()

    @property
    def sentence(self) -> str:
        """The answer in words."""
        layers = f"{self.kind}: " if self.kind != "all" else ""
        if self.target <= self.trained:
            within = f"{self.target} tokens are within the trained {self.trained}"
            return f"{layers}{within}: no pair meets an angle that it has not seen"
        if not self.unseen_pairs:
            return f"{layers}at {self.target} tokens no pair meets an angle that it has not seen in {self.trained}"
        unseen = f"{len(self.unseen_pairs)} of {len(self.pairs)} pairs"
        return f"{layers}at {self.target} tokens {unseen} meet angles that they have not seen in {self.trained}"


def analyse(spec: RopeSpec, target: int | None = None) -> list[Analysis]:
    """Every kind of layer that turns, at ``target`` tokens (by default what the spec serves, or the trained length)."""
    if spec.trained is None and any(rope.trained is None for rope in spec.ropes().values()):
        raise ValueError(
            "the trained length is not known: the config has no max_position_embeddings; say it with --trained-length"
        )
    length = target or spec.served or spec.trained or 1
    if length < 1:
        raise ValueError(f"the target length is a number of tokens, at least 1, got {length}")
    return [_of(kind, rope, spec, length) for kind, rope in spec.ropes().items()]


def _of(kind: str, rope: LayerRope, spec: RopeSpec, target: int) -> Analysis:
    trained = spec.trained or rope.trained or 1
    before, after = rope.plain(), rope.spectrum(target)
    slack = 1e-9  # of rounding: what a scaling brings back exactly to the trained range is in it
    pairs = []
    for i, (w, u) in enumerate(zip(before.frequencies, after.frequencies, strict=True)):
        seen, met = trained * w, target * u
        pairs.append(
            Pair(
                i,
                w,
                u,
                2 * math.pi / u if u else None,
                trained * w / (2 * math.pi),
                target * u / (2 * math.pi),
                u / w,
                seen < 2 * math.pi and met > seen * (1 + slack),
            )
        )
    live = [pair for pair in pairs if pair.wavelength is not None]
    return Analysis(
        kind,
        sum(1 for name in spec.layers if name == kind),
        trained,
        target,
        rope.base,
        rope.rotary,
        rope.head_dim,
        rope.pairing,
        repr(rope.scaling) if rope.scaling is not None else "none",
        rope.temperature(target),
        next((pair.pair for pair in pairs if pair.turns < 1), None),
        tuple(pair.pair for pair in pairs if pair.unseen),
        pairs[0].resolution,
        max((pair.wavelength for pair in live if pair.wavelength is not None), default=None),
        tuple(pairs),
    )
