"""SignalPlan: a run on generated signals of three or four axes, as plain data. Is order along every axis learned?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from milepost.checks import check_known
from milepost.lab.plan import LabPlan, check_encodings, check_seeds
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.lab.space.signals import KINDS, Signals


@dataclass(frozen=True)
class SignalProfile:
    """What a size word means for signals; ``share`` channels of each head turn by each axis."""

    layers: int
    share: int
    heads: int
    steps: int
    rows: int
    tested: int
    seeds: int


PROFILES = {
    "tiny": SignalProfile(1, 4, 2, 10, 8, 64, 1),
    "quick": SignalProfile(2, 4, 4, 600, 32, 512, 1),
    "standard": SignalProfile(2, 8, 4, 1000, 64, 2048, 3),
}


@dataclass(frozen=True, kw_only=True)
class SignalPlan(LabPlan):
    """A run on signals. Nothing is compared: each run is measured against chance."""

    modality: str
    shape: EncoderShape
    tested: int
    shape_class, reads = EncoderShape, "signals"

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Signals of one modality."""
        return (self.modality,)

    def read(self) -> Signals:
        """What generates the signals."""
        return KINDS[self.modality]

    def protocol(self, data: Signals) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        return {
            "plan": self.to_json(),
            "signals": data.describe(),
            "intervals": "95%, Wilson's",
            "label": "a bit for each axis: which of two marks stands before the other on it",
            "right": "share of test signals whose bit of this axis is predicted right; chance is a half",
            "turned": "share of test signals whose predicted bit of this axis turns when they are mirrored along it: "
            "1 for a model that knows the order, 0 for one that does not",
            "others": "share of the other axes' predicted bits that turn then: 0 for a model that keeps axes apart",
            "learned": "an axis is learned where the interval of `right` and that of `turned` lie above a half",
            "shift": "largest change of a logit, in float64, when all positions move by so many along one axis; "
            "the control moves half of the tokens",
        }


def usual(kind: str) -> tuple[str, ...]:
    """What is tried: no position, and axial RoPE."""
    return "nope", f"axial(axes={len(KINDS[kind].axes)}, base=100.0)"


def make(kind: str, profile: str = "quick", *, encodings: Sequence[str] = (), seeds: Sequence[int] = ()) -> SignalPlan:
    """A plan from what a user asks for. Mistakes are found here, before any training."""
    check_known("signal", kind, KINDS)
    check_known("profile", profile, PROFILES, " for signals")
    word, signals = PROFILES[profile], KINDS[kind]
    width = word.heads * word.share * len(signals.axes)
    shape = EncoderShape(signals.sides, signals.channels, signals.classes, word.layers, width, word.heads)
    return SignalPlan(
        profile=profile,
        modality=kind,
        shape=shape,
        steps=word.steps,
        rows=word.rows,
        tested=word.tested,
        seeds=check_seeds(seeds, word.seeds),
        encodings=check_encodings(encodings or usual(kind), lambda spec: Encoder(shape, spec)),
    )
