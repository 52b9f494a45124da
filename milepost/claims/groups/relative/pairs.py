"""Pairs of trained models: which of them carry near places, and which far ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.claims.claim import Claim, Found, points
from milepost.claims.needs import Need
from milepost.claims.rule import Number, control, core
from milepost.claims.seeds import shares
from milepost.claims.trained import Lab
from milepost.encodings.rope import RoPE
from milepost.lab import tasks
from milepost.lab.model import Decoder
from milepost.lab.tasks.scoring import SEED, TESTED, scores
from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum

NEAR, FAR = Need("deep", ("rope",), "previous", weights=True), Need("deep", ("rope",), "copy", weights=True)


@dataclass(frozen=True, repr=False)
class Stopped(Scaling):
    """Pairs ``first`` to ``last`` - 1 stand still: they say nothing of the place."""

    first: int
    last: int

    def __call__(self, plain: Spectrum) -> Spectrum:
        return replace(
            plain, frequencies=tuple(0.0 if self.first <= i < self.last else w for i, w in enumerate(plain.frequencies))
        )


def answers(models: list[Decoder], task: str, stop: tuple[float, float] | None) -> Number:
    """The share of right answers when a part of the pairs, from one share of them to another, stands still."""
    found = []
    for model in models:
        size, pairs = model.shape.head_dim, model.shape.head_dim // 2
        scaling = None if stop is None else Stopped(*(round(side * pairs) for side in stop))
        reader = model.with_encoding(repr(RoPE(size, scaling=scaling))).eval()
        ids, scored, _ = tasks.rows(task, model.shape.length, TESTED, seed=SEED)
        found.append(float(scores(reader, ids, scored)[1].sum() / scored.sum()))
    return shares(found, TESTED * len(found), "rows")


def scales_found(lab: Lab) -> Found:
    """A near task (two tokens back) and a far one (half the text back), with the fast half of the pairs standing still, or the slow one."""
    shown: dict[str, Number] = {}
    for word, need in (("near", NEAR), ("far", FAR)):
        models = lab.models(need, "rope")
        for how, stop in (("all turn", None), ("fast stand still", (0.0, 0.5)), ("slow stand still", (0.5, 1.0))):
            shown[f"{word}, {how}"] = answers(models, need.data, stop)

    def less(a: str, b: str) -> Number:
        x, y = shown[a], shown[b]
        return Number(x.value - y.value, x.sides[0] - y.sides[1], x.sides[1] - y.sides[0], x.over)

    numbers = {
        "near learned": shown["near, all turn"], "far learned": shown["far, all turn"], "near": less("near, slow stand still", "near, fast stand still"),
        "far": less("far, fast stand still", "far, slow stand still"),
    }  # fmt: skip
    return Found(numbers, (points("Right answers", "share", shown),))


CLAIMS = (
    Claim(
        "dims-scales",
        "Low pairs carry local, high pairs global position.",
        "低维的对承载局部位置，高维的对承载全局位置。",
        "001 §5.3",
        "Small models with rope, trained to repeat the letter two tokens back and to copy from half a text back: the fast half of the pairs, or the "
        "slow half, is made to stand still.",
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
        trained=scales_found,
        needs=(NEAR, FAR),
    ),
)
