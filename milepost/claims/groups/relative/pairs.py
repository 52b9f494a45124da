"""Pairs of trained models: which of them carry near positions, and which far ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.claims.experiment import Claim, Lab, Measurement, Need, Number, control, core, points, shares
from milepost.encodings.rope import RoPE
from milepost.lab import tasks
from milepost.lab.model import Decoder
from milepost.lab.task_scores import SEED, TESTED, scores
from milepost.scaling import Scaling
from milepost.spectrum import Spectrum

NEAR, FAR = Need("deep", ("rope",), "previous", weights=True), Need("deep", ("rope",), "copy", weights=True)
HALVES = {"all": None, "fast stopped": (0.0, 0.5), "slow stopped": (0.5, 1.0)}
"""Which part of the pairs is stopped, from one share of them to another."""


@dataclass(frozen=True, repr=False)
class Stopped(Scaling):
    """Pairs ``first`` to ``last`` - 1 do not turn: they carry no position."""

    first: int
    last: int

    def __call__(self, plain: Spectrum) -> Spectrum:
        return replace(
            plain, frequencies=tuple(0.0 if self.first <= i < self.last else w for i, w in enumerate(plain.frequencies))
        )


def answers(models: list[Decoder], task: str, stop: tuple[float, float] | None) -> Number:
    """The share of right answers when a part of the pairs is stopped."""
    right = []
    for model in models:
        size, pairs = model.shape.head_dim, model.shape.head_dim // 2
        scaling = None if stop is None else Stopped(*(round(side * pairs) for side in stop))
        reader = model.with_encoding(repr(RoPE(size, scaling=scaling))).eval()
        ids, scored, _ = tasks.rows(task, model.shape.length, TESTED, seed=SEED)
        right.append(float(scores(reader, ids, scored)[1].sum() / scored.sum()))
    return shares(right, TESTED * len(right), "rows")


def measure_scales(lab: Lab) -> Measurement:
    """A near task (two tokens back) and a far one (half the text back), with the fast or the slow half stopped."""
    shown = {
        f"{word}, {how}": answers(models, need.data, stop)
        for word, need in (("near", NEAR), ("far", FAR))
        for models in [lab.models(need, "rope")]
        for how, stop in HALVES.items()
    }
    numbers = {
        "near learned": shown["near, all"],
        "far learned": shown["far, all"],
        "near": shown["near, slow stopped"] - shown["near, fast stopped"],
        "far": shown["far, fast stopped"] - shown["far, slow stopped"],
    }
    return Measurement(numbers, (points("Right answers", "share", shown),))


CLAIMS = (
    Claim(
        "dims-scales",
        "Low pairs carry local, high pairs global position.",
        "低维的对承载局部位置，高维的对承载全局位置。",
        "001 §5.3",
        "Small models with rope, trained to repeat the letter two tokens back and to copy from half a text back: the "
        "fast half of the pairs, or the slow half, is stopped.",
        (
            control("near learned", "at least", 0.9, "the share of right near answers as trained"),
            control("far learned", "at least", 0.9, "the share of right far answers as trained"),
            core(
                "near",
                "at least",
                0.0,
                "the share of near answers that stopping fast pairs costs more than stopping slow ones",
            ),
            core(
                "far",
                "at least",
                0.0,
                "the share of far answers that stopping slow pairs costs more than stopping fast ones",
            ),
        ),
        trained=measure_scales,
        needs=(NEAR, FAR),
    ),
)
