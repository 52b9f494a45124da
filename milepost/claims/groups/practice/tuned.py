"""Stretching with and without training: how far YaRN and NTK-aware scaling carry small models."""

from __future__ import annotations

from collections.abc import Callable

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    Run,
    StretchedCheckpoint,
    core,
    measure_each,
    rise,
)
from milepost.claims.groups.practice.lengths import by_length, rise_beyond
from milepost.claims.groups.relative.heads import ROPE_MODELS
from milepost.encodings.rope import RoPE
from milepost.lab.model import Decoder
from milepost.measure.losses import TOLERATED_RISE
from milepost.scaling import NTK

TUNED = Need("tuned", ("rope",))
FARTHEST = 64


def measure_training(lab: Lab) -> Measurement:
    """YaRN without training and with a little, at 2 to 16 times the trained length."""
    none, zero, tuned = (lab.runs(TUNED, "rope", name) for name in ("none", "yarn", "yarn tuned"))
    numbers = {
        f"{name}, {times} times": _rise(none, runs, times)
        for name, runs in (("zero", zero), ("tuned", tuned))
        for times in (2, 4, 8, 16)
    }
    lines = {"none": none, "yarn": zero, "yarn, tuned": tuned}
    return Measurement(numbers, (by_length("Loss of the same tokens", lines),))


def _rise(none: list[Run], runs: list[Run], times: int) -> Number:
    """How much higher the loss is at so many times the trained length than that of the model as it is at home."""
    home = none[0]["trained_length"]
    moved = [
        {**run, "loss_by_window": {**run["loss_by_window"], str(home): plain["loss_by_window"][str(home)]}}
        for plain, run in zip(none, runs, strict=True)
    ]
    return rise(moved, times * home, home)


def measure_farthest(lab: Lab) -> Measurement:
    """NTK-aware at 64 times the trained length without training, and at 16 times with a little."""
    none, tuned = lab.runs(TUNED, "rope"), lab.runs(TUNED, "rope", "ntk tuned")

    def stretch(model: Decoder) -> Decoder:
        return model.with_encoding(repr(RoPE(model.shape.head_dim, scaling=NTK(FARTHEST)))).eval()

    def far() -> Number:
        return rise_beyond(lab, lab.models(ROPE_MODELS, "rope"), FARTHEST, lab.plans["text"].windows // 4, stretch)

    numbers = measure_each({"zero": far, "tuned": lambda: _rise(none, tuned, 16)})
    return Measurement(numbers, (by_length("Loss of the same tokens", {"none": none, "ntk, tuned": tuned}),))


def on_checkpoint(method: str) -> Callable[[StretchedCheckpoint], Measurement]:
    """An experiment: a method on a checkpoint, at twice its trained length without training."""
    return lambda checkpoint: Measurement({"real zero, 2 times": checkpoint.rise(method)}, (), (checkpoint.note,))


CLAIMS = (
    Claim(
        "yarn-needs-training",
        "YaRN needs training and reaches 4 times at most.",
        "YaRN 需要额外训练，且最多外推到 4 倍。",
        "002",
        "Small models with rope under YaRN at 2, 4, 8 and 16 times the trained length, without training and after a "
        "little training at 16 times. A checkpoint at twice its trained length, without training.",
        (
            core(
                "real zero, 2 times",
                "at least",
                TOLERATED_RISE,
                "the rise of a checkpoint's loss at 2 times without training, as a share",
            ),
            core(
                "zero, 2 times",
                "at least",
                TOLERATED_RISE,
                "the rise of the loss at 2 times without training, as a share",
            ),
            core(
                "tuned, 4 times",
                "at most",
                TOLERATED_RISE,
                "the rise of the loss at 4 times after training, as a share",
            ),
            core(
                "tuned, 8 times",
                "at least",
                TOLERATED_RISE,
                "the rise of the loss at 8 times after training, as a share",
            ),
        ),
        trained=measure_training,
        checkpoint=on_checkpoint("yarn"),
        needs=(TUNED,),
    ),
    Claim(
        "ntk-64",
        "Tuned frequencies reach 64 times the trained length.",
        "调整频率后可支持 64 倍于训练长度的上下文。",
        "003",
        "Small models with rope under NTK-aware scaling: without training at 64 times the trained length, and after a "
        "little training at 16 times. A checkpoint at twice its trained length, without training.",
        (
            core(
                "real zero, 2 times",
                "at most",
                TOLERATED_RISE,
                "the rise of a checkpoint's loss at 2 times without training, as a share",
            ),
            core("zero", "at most", TOLERATED_RISE, "the rise of the loss at 64 times without training, as a share"),
            core("tuned", "at most", TOLERATED_RISE, "the rise of the loss at 16 times after training, as a share"),
        ),
        trained=measure_farthest,
        checkpoint=on_checkpoint("ntk"),
        needs=(TUNED, ROPE_MODELS),
    ),
)
