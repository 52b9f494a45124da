"""Added codes, trained: integers, binary numbers, sinusoids, and adding against appending."""

from __future__ import annotations

from functools import partial

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    control,
    core,
    gap,
    mean_loss,
    measure_each,
    points,
)
from milepost.claims.groups.absolute.frame import FRAME, measure_frame
from milepost.claims.groups.absolute.tasks import LEARNED

CONCATENATED = 'sinusoidal(width={quarter}, how="concat")'
NORMALISED = 'integer(over="length")'
FIRST = Need("text", ("integer", "binary", "sinusoidal"))
DIVIDED = Need("text", (NORMALISED, "sinusoidal"))
BOTH = Need("text", ("sinusoidal", CONCATENATED))
NARROW = 'sinusoidal(width=8, how="concat")'
"""Takes so few channels from words that the models have as many parameters, to within 1%."""
EQUAL = Need("text", ("sinusoidal", NARROW))


def measure_first(lab: Lab) -> Measurement:
    """The loss of raw integers, integers over the length, and binary codes minus that of sinusoids."""
    home = lab.runs(FIRST, "sinusoidal")[0]["trained_length"]
    behind = {"integer": (FIRST, "integer"), "binary": (FIRST, "binary"), "normalised": (DIVIDED, NORMALISED)}
    numbers = measure_each({number: partial(_behind_sinusoids, lab, *which, home) for number, which in behind.items()})
    shown = {name: mean_loss(lab.runs(FIRST, name), home) for name in FIRST.encodings}
    notes = () if "normalised" in numbers else ("normalised integers were not trained",)
    figure = points("Loss at the trained length", "nats a token", shown)
    return Measurement(numbers, (figure,), (*notes, *lab.source(FIRST)))


def _behind_sinusoids(lab: Lab, need: Need, name: str, length: int) -> Number:
    return gap(lab.runs(need, "sinusoidal"), lab.runs(need, name), length)


def measure_both(lab: Lab) -> Measurement:
    """Appended against added, at equal width, and at equal width and parameters."""
    added, appended = lab.runs(BOTH, "sinusoidal"), lab.runs(BOTH, CONCATENATED)
    home = added[0]["trained_length"]
    sizes = f"{added[0]['parameters']} added, {appended[0]['parameters']} appended"
    notes = [f"parameters: {sizes} (words have fewer channels)", *lab.source(BOTH)]
    shown = {"added": mean_loss(added, home), "appended, a quarter": mean_loss(appended, home)}
    numbers = {"behind": gap(added, appended, home)}
    numbers |= measure_each({"equal": partial(_behind_sinusoids, lab, EQUAL, NARROW, home)})
    if "equal" in numbers:
        plain, narrow = (lab.runs(EQUAL, name)[0]["parameters"] for name in EQUAL.encodings)
        shown["appended, 8 channels"] = mean_loss(lab.runs(EQUAL, NARROW), home)
        notes.append(f"with a code of 8 channels, {narrow} parameters appended and {plain} added")
    return Measurement(numbers, (points("Loss at the trained length", "nats a token", shown),), tuple(notes))


CLAIMS = (
    Claim(
        "integer-binary-train",
        "Raw integers and binary codes train worse than sinusoids.",
        "直接用整数或二进制编码训练，效果不如正弦编码。",
        "004",
        "Small models that add integers (raw, and over the length), binary codes or sinusoidal codes, on the same "
        "tokens at the trained length.",
        (
            core("integer", "at least", 0.0, "the loss with raw integers minus that with sinusoids, in nats a token"),
            core("binary", "at least", 0.0, "the loss with binary codes minus that with sinusoids"),
            core("normalised", "at least", 0.0, "the loss with integers over the length minus that with sinusoids"),
        ),
        trained=measure_first,
        needs=(FIRST, DIVIDED),
    ),
    Claim(
        "add-or-concat-trained",
        "Concatenating positions is no better than adding them.",
        "拼接位置编码并不比相加更好。",
        "001 §3.2.3, 004",
        "Small models of one width whose sinusoidal codes are added, or take a quarter of the channels, on the same "
        "tokens at the trained length. Then again with an appended code of 8 channels, with which models have as many "
        "parameters to within 1%.",
        (
            core("behind", "at least", 0.0, "the loss of appending minus that of adding, in nats a token"),
            core("equal", "at least", 0.0, "the same difference at equal numbers of parameters"),
        ),
        trained=measure_both,
        needs=(BOTH, EQUAL),
    ),
    Claim(
        "learned-fits",
        "A learned table fits position patterns of its data that formulas miss.",
        "可学习的位置表能拟合数据中公式无法表达的位置模式。",
        "001 §3.3",
        f"Small models learn a frame of {FRAME} positions, each of which shifts its letter by a random number of its "
        "own: with a learned table, with sinusoidal codes, and with rope.",
        (
            control("learned", "at least", LEARNED, "the share of right answers with a learned table"),
            core("sinusoidal", "at most", LEARNED, "the share of right answers with sinusoids"),
            core("rope", "at most", LEARNED, "the share of right answers with rope"),
        ),
        trained=measure_frame,
    ),
)
