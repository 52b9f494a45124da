"""Stretching with and without training: how far YaRN and NTK-aware scaling carry small models."""

from __future__ import annotations

from collections.abc import Callable

from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Claim, Found, collected
from milepost.claims.groups.practice.lengths import ROPE_ITSELF, by_length, farther
from milepost.claims.needs import Need
from milepost.claims.real import Real
from milepost.claims.rule import Number, core
from milepost.claims.seeds import Run, rise
from milepost.claims.trained import Lab
from milepost.encodings.rope import RoPE
from milepost.lab.model import Decoder
from milepost.scaling.ntk import NTK

TUNED = Need("tuned", ("rope",))
FARTHEST = 64


def training_found(lab: Lab) -> Found:
    """YaRN without training and with a little, at 2 to 16 times the trained length."""
    none, zero, tuned = (lab.runs(TUNED, "rope", name) for name in ("none", "yarn", "yarn tuned"))
    home = none[0]["trained_length"]
    numbers = {
        f"{name}, {n} times": _against(none, some, n * home, home)
        for name, some in (("zero", zero), ("tuned", tuned))
        for n in (2, 4, 8, 16)
    }
    return Found(numbers, (by_length("Loss of the same tokens", {"none": none, "yarn": zero, "yarn, tuned": tuned}),))


def _against(none: list[Run], some: list[Run], length: int, home: int) -> Number:
    """How much more is lost at a length than by the model as it is at home, as a share."""
    moved = [
        {**run, "loss_by_window": {**run["loss_by_window"], str(home): plain["loss_by_window"][str(home)]}}
        for plain, run in zip(none, some, strict=True)
    ]
    return rise(moved, length, home)


def farthest_found(lab: Lab) -> Found:
    """NTK-aware at 64 times the trained length without training, and at 16 times with a little."""
    none, tuned = lab.runs(TUNED, "rope"), lab.runs(TUNED, "rope", "ntk tuned")
    home = none[0]["trained_length"]

    def stretched(model: Decoder) -> Decoder:
        return model.with_encoding(repr(RoPE(model.shape.head_dim, scaling=NTK(FARTHEST)))).eval()

    def far() -> Number:
        return farther(lab, lab.models(ROPE_ITSELF, "rope"), FARTHEST, lab.plans["text"].windows // 4, stretched)

    numbers = collected({"zero": far, "tuned": lambda: _against(none, tuned, 16 * home, home)})
    return Found(numbers, (by_length("Loss of the same tokens", {"none": none, "ntk, tuned": tuned}),))


def on_real(method: str) -> Callable[[Real], Found]:
    """A function that measures a method on a checkpoint, at twice its trained length without training."""

    def found(real: Real) -> Found:
        note = f"on {real.subject.name}, trained at {real.trained}, read at {real.target}"
        return Found({"real zero, 2 times": real.rise(method)}, (), (note,))

    return found


CLAIMS = (
    Claim(
        "yarn-needs-training",
        "YaRN needs training and reaches 4 times at most.",
        "YaRN 需要额外训练，且最多外推到 4 倍。",
        "002",
        "Small models with rope under YaRN at 2, 4, 8 and 16 times the trained length, without training and after a little at 16 times. A "
        "checkpoint at twice its trained length, without training.",
        (
            core(
                "real zero, 2 times",
                "at least",
                HURTS,
                "the rise of a checkpoint's loss at 2 times without training, as a share,",
            ),
            core("zero, 2 times", "at least", HURTS, "the rise of the loss at 2 times without training, as a share,"),
            core("tuned, 4 times", "at most", HURTS, "the rise of the loss at 4 times after training, as a share,"),
            core("tuned, 8 times", "at least", HURTS, "the rise of the loss at 8 times after training, as a share,"),
        ),
        trained=training_found,
        checkpoint=on_real("yarn"),
        needs=(TUNED,),
    ),
    Claim(
        "ntk-64",
        "Tuned frequencies reach 64 times the trained length.",
        "调整频率后可支持 64 倍于训练长度的上下文。",
        "003",
        "Small models with rope under NTK-aware scaling: without training at 64 times the trained length, and after a little training at 16 times. A "
        "checkpoint at twice its trained length, without training.",
        (
            core(
                "real zero, 2 times",
                "at most",
                HURTS,
                "the rise of a checkpoint's loss at 2 times without training, as a share,",
            ),
            core("zero", "at most", HURTS, "the rise of the loss at 64 times without training, as a share,"),
            core("tuned", "at most", HURTS, "the rise of the loss at 16 times after training, as a share,"),
        ),
        trained=farthest_found,
        checkpoint=on_real("ntk"),
        needs=(TUNED, ROPE_ITSELF),
    ),
)
