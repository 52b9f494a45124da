"""Added codes, trained: integers, binary numbers, sinusoids, and adding against appending."""

from __future__ import annotations

from collections.abc import Callable

from milepost.claims.claim import Claim, Found, collected, points
from milepost.claims.groups.absolute.frame import FRAME, frame_found
from milepost.claims.needs import Need
from milepost.claims.rule import Number, control, core
from milepost.claims.seeds import gap, mean_loss
from milepost.claims.trained import Lab

CONCATENATED = 'sinusoidal(width={quarter}, how="concat")'
NORMALISED = 'integer(over="length")'
FIRST = Need("text", ("integer", "binary", "sinusoidal"))
DIVIDED = Need("text", (NORMALISED, "sinusoidal"))
BOTH = Need("text", ("sinusoidal", CONCATENATED))
NARROW = 'sinusoidal(width=8, how="concat")'
"""Takes so few channels from words that models have as many parameters, to within 1%."""
EQUAL = Need("text", ("sinusoidal", NARROW))


def first_found(lab: Lab) -> Found:
    """What raw integers, integers over the length, and binary codes lose more than sinusoids at the trained length."""
    home = lab.runs(FIRST, "sinusoidal")[0]["trained_length"]

    def behind(need: Need, name: str) -> Callable[[], Number]:
        return lambda: gap(lab.runs(need, "sinusoidal"), lab.runs(need, name), home)

    numbers = collected(
        {
            "integer": behind(FIRST, "integer"),
            "binary": behind(FIRST, "binary"),
            "normalised": behind(DIVIDED, NORMALISED),
        }
    )
    shown = {name: mean_loss(lab.runs(FIRST, name), home) for name in FIRST.encodings}
    notes = () if "normalised" in numbers else ("normalised integers were not trained",)
    return Found(numbers, (points("Loss at the trained length", "nats a token", shown),), (*notes, *lab.source(FIRST)))


def both_found(lab: Lab) -> Found:
    """Appended against added, at equal width, and at equal width and parameters."""
    added, appended = lab.runs(BOTH, "sinusoidal"), lab.runs(BOTH, CONCATENATED)
    home = added[0]["trained_length"]
    note = (
        f"parameters: {added[0]['parameters']} added, {appended[0]['parameters']} appended (words have fewer channels)"
    )
    shown = {"added": mean_loss(added, home), "appended, a quarter": mean_loss(appended, home)}
    numbers, notes = {"behind": gap(added, appended, home)}, [note, *lab.source(BOTH)]
    numbers |= collected({"equal": lambda: gap(lab.runs(EQUAL, "sinusoidal"), lab.runs(EQUAL, NARROW), home)})
    if "equal" in numbers:
        sizes = [lab.runs(EQUAL, name)[0]["parameters"] for name in EQUAL.encodings]
        shown["appended, 8 channels"] = mean_loss(lab.runs(EQUAL, NARROW), home)
        notes.append(f"with a code of 8 channels, {sizes[1]} parameters appended and {sizes[0]} added")
    return Found(numbers, (points("Loss at the trained length", "nats a token", shown),), tuple(notes))


CLAIMS = (
    Claim(
        "integer-binary-train",
        "Raw integers and binary codes train worse than sinusoids.",
        "直接用整数或二进制编码训练，效果不如正弦编码。",
        "004",
        "Small models with integers (raw, and over the length), binary codes and sinusoidal codes added, on the same tokens at the trained length.",
        (
            core("integer", "at least", 0.0, "what raw integers lose more than sinusoids, in nats a token,"),
            core("binary", "at least", 0.0, "what binary codes lose more than sinusoids"),
            core("normalised", "at least", 0.0, "what integers over the length lose more than sinusoids"),
        ),
        trained=first_found,
        needs=(FIRST, DIVIDED),
    ),
    Claim(
        "add-or-concat-trained",
        "Concatenating positions is no better than adding them.",
        "拼接位置编码并不比相加更好。",
        "001 §3.2.3, 004",
        "Small models of one width whose sinusoidal codes are added, or take a quarter of the channels, on the same tokens at the trained length. With a "
        "code of 8 channels, which leaves models as many parameters to within 1%, again.",
        (
            core("behind", "at least", 0.0, "what appending loses more than adding, in nats a token,"),
            core("equal", "at least", 0.0, "what appending loses more than adding at as many parameters"),
        ),
        trained=both_found,
        needs=(BOTH, EQUAL),
    ),
    Claim(
        "learned-fits",
        "A learned table fits position patterns of its data that formulas miss.",
        "可学习的位置表能拟合数据中公式无法表达的位置模式。",
        "001 §3.3",
        f"Small models learn a frame of {FRAME} places, each of which shifts its letter by a number of its own, drawn once: a learned table, sinusoidal "
        "codes, rope.",
        (
            control("learned", "at least", 0.5, "the share of right answers with a learned table"),
            core("sinusoidal", "at least", 0.0, "the share of right answers by which the table is ahead of sinusoids"),
            core("rope", "at least", 0.0, "the share of right answers by which it is ahead of rope"),
        ),
        trained=frame_found,
    ),
)
