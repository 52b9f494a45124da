"""Choosing: which encoding for what, by the lab's own table; and moving from one to another."""

from __future__ import annotations

from milepost.checkpoints.migration.losses import ENOUGH
from milepost.claims.experiment import Claim, Lab, Measurement, Need, core, gap, limit, mean_loss, measure_each, points
from milepost.claims.groups.practice.lengths import by_length
from milepost.claims.groups.practice.moved import LEARNED, TENTH, measure_moved
from milepost.measure.losses import TOLERATED_RISE

TABLE = Need("text", ("sinusoidal", "learned", "alibi", "rope"))


def measure_choose(lab: Lab) -> Measurement:
    """Paired differences on the same tokens, at the trained length and at 8 times it."""
    runs = {name: lab.runs(TABLE, name) for name in TABLE.encodings}
    stretched = lab.runs(TABLE, "rope", "self-extend")
    home = runs["rope"][0]["trained_length"]
    numbers = measure_each(
        {
            "far, rope": lambda: gap(runs["alibi"], runs["rope"], 8 * home),
            "far, sinusoidal": lambda: gap(runs["alibi"], runs["sinusoidal"], 8 * home),
            "far, stretched": lambda: gap(runs["alibi"], stretched, 8 * home),
            "home": lambda: gap(runs["rope"], runs["alibi"], home),
            "short": lambda: gap(runs["learned"], runs["rope"], home),
        }
    )
    at_home = {name: mean_loss(some, home) for name, some in runs.items()}
    figures = (
        by_length("Loss of the same tokens", {**runs, "rope, self-extend": stretched}),
        points("Loss at the trained length", "nats a token", at_home),
    )
    return Measurement(numbers, figures, lab.source(TABLE))


CLAIMS = (
    Claim(
        "choose",
        "For far extrapolation ALiBi, for balance RoPE, for short fixed lengths learned positions.",
        "远距离外推选 ALiBi，平衡选 RoPE，短而固定的长度选可学习位置编码。",
        "001 §6, 002",
        "Small models of each, at the trained length and at 8 times it, on the same tokens; rope also stretched "
        "without training (self-extend).",
        (
            core(
                "far, rope",
                "at least",
                0.0,
                "the loss with rope minus that with alibi at 8 times the trained length, in nats",
            ),
            core("far, sinusoidal", "at least", 0.0, "the loss with sinusoidal codes minus that with alibi there"),
            limit("home", "at least", 0.0, "the loss with alibi minus that with rope at the trained length"),
            limit("short", "at least", 0.0, "the loss with rope minus that with a learned table at the trained length"),
            limit(
                "far, stretched", "at least", 0.0, "the loss with rope and self-extend minus that with alibi at 8 times"
            ),
        ),
        trained=measure_choose,
        needs=(TABLE,),
    ),
    Claim(
        "migrate",
        "An absolute-position model moves to RoPE or ALiBi by replacing, tuning at a low rate, then scaling.",
        "绝对位置模型可以通过替换、低学习率继续训练再缩放，迁移到 RoPE 或 ALiBi。",
        "001 §6.2",
        "Small models with a learned table are moved to rope and to alibi as `milepost migrate` does it, and tuned at "
        f"a third of the rate of training with at most 1/{TENTH} of its tokens. Replacing the table raises the loss "
        "on test text; the share of that rise which tuning takes back is measured. So is the loss of the same tokens "
        "at twice the old length, for rope with the better of interpolation and NTK, for alibi as it is.",
        (
            core("rope", "at least", ENOUGH, "the share of the rise of the loss that tuning takes back with rope"),
            core("alibi", "at least", ENOUGH, "the same share with alibi"),
            limit(
                "far, rope",
                "at most",
                TOLERATED_RISE,
                "the rise of the loss at twice the old length with rope, as a share",
            ),
            limit("far, alibi", "at most", TOLERATED_RISE, "the same rise with alibi"),
        ),
        trained=measure_moved,
        needs=(LEARNED,),
    ),
)
