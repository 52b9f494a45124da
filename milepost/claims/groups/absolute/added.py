"""Added codes: adding or appending them, and tables that are learned."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from milepost.claims.claim import Claim, Figure, Found, points
from milepost.claims.needs import Need
from milepost.claims.rule import control, core, limit
from milepost.claims.seeds import both
from milepost.claims.trained import Lab
from milepost.claims.world import drawn, largest
from milepost.encodings.learned import Learned
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.lab.model import Decoder, Shape
from milepost.testing.layer import budget

SHAPE = Shape(vocabulary=64, layers=2, width=32, heads=4, length=48)
APPENDED = 8
WIDTHS = (32, 64, 128, 256, 512, 768, 1024, 2048)
WORDS, PLACES = 512, 512
TABLES = Need("text", ("learned",), weights=True)


def concat_found() -> Found:
    """A concatenating model, and an adding one whose table and embeddings are zero where the other has nothing."""
    one = Decoder(SHAPE, f'sinusoidal(width={APPENDED}, how="concat")').start(0).double().eval()
    other = Decoder(SHAPE, "learned").start(1).double().eval()
    words = SHAPE.width - APPENDED
    table = one.encodings[0].embed(
        torch.zeros(1, SHAPE.length, words, dtype=torch.float64), torch.arange(SHAPE.length)
    )[0]
    weights = {name: value for name, value in one.state_dict().items() if ".enc." not in name}
    weights["tokens.weight"] = F.pad(one.tokens.weight, (0, APPENDED))
    ids = torch.randint(SHAPE.vocabulary, (4, SHAPE.length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = largest(other(ids) - one(ids))
        other.load_state_dict({**weights, "blocks.0.enc.table": table})
        after = largest(other(ids) - one(ids))
    names = ["random weights", "weights as constructed"]
    figure = Figure(
        "points", "An adding model against a concatenating one", "", "largest difference of a logit", names, {"difference": [before, after]},
    )  # fmt: skip
    return Found({"before": before, "after": after}, (figure,))


def angles(words: torch.Tensor, codes: torch.Tensor) -> tuple[float, float]:
    """The mean cosine, without its sign, of a word and a code; and that of the smallest angle between the spaces that they span."""
    w, c = (F.normalize(x, dim=-1) for x in (words, codes))
    bases = []
    for x in (words, codes):
        _, s, v = torch.linalg.svd(x, full_matrices=False)
        bases.append(v[s > 1e-6 * s[0]])
    return float((w @ c.T).abs().mean()), float(torch.linalg.svdvals(bases[0] @ bases[1].T)[0])


def orthogonal_found() -> Found:
    """Random words and sinusoidal codes, by width."""
    mean, smallest = [], []
    for width in WIDTHS:
        one, space = angles(drawn(WORDS, width, seed=1), Sinusoidal(width).code(torch.arange(PLACES)))
        mean.append(one)
        smallest.append(space)
    figure = Figure(
        "lines", f"{WORDS} random words and {PLACES} sinusoidal codes", "width", "cosine", WIDTHS,
        {"mean of a word and a code": mean, "nearest directions of the two spaces": smallest}, log_x=True, mark=0.1,
    )  # fmt: skip
    return Found({"vectors": mean[WIDTHS.index(768)], "spaces": smallest[WIDTHS.index(768)]}, (figure,))


def trained_angles_found(lab: Lab) -> Found:
    """Words and places of trained models with a learned table."""
    each = []
    for model in lab.models(TABLES, "learned"):
        table = model.encodings[0].table.detach().double()  # type: ignore[operator]
        each.append(angles(model.tokens.weight.detach().double(), table))
    number = both([one for one, _ in each], None, None, "all words and places")
    note = f"between the spaces of words and places of trained models the smallest angle has cosine {max(space for _, space in each):.2g}"
    return Found(
        {"trained": number},
        (points("Mean cosine of a word and a place, trained", "cosine", {"learned": number}, 0.1),),
        (note,),
    )


def ends_found() -> Found:
    """Positions inside a learned table and past its end, in the encoding and in a whole model."""
    length = SHAPE.length
    enc, model = Learned(length, 8), Decoder(SHAPE, "learned").start(0).eval()
    inside: list[bool] = []
    past: list[bool] = []
    told = 0
    for position in (0, 1, length - 1, length, length + 1, 2 * length, 1048575):
        here: list[bool] = []
        try:
            enc.embed(torch.zeros(1, 1, 8), torch.tensor([position]))
            here.append(True)
        except ValueError as error:
            here.append(False)
            told += "past the end" in str(error)
        if position < 4 * length:
            try:
                with torch.no_grad():
                    model(torch.zeros(1, position + 1, dtype=torch.long))
                here.append(True)
            except ValueError:
                here.append(False)
        (inside if position < length else past).extend(here)
    numbers = {"inside": sum(inside) / len(inside), "past": sum(past) / len(past), "told": float(told)}
    figure = Figure(
        "points", f"Positions that a table of {length} rows takes", "", "share taken", ["inside", "past the end"],
        {"share": [numbers["inside"], numbers["past"]]},
    )  # fmt: skip
    return Found(numbers, (figure,))


CLAIMS = (
    Claim(
        "add-vs-concat",
        "Concatenation is a special case of addition.",
        "拼接是加法的一种特殊情况。",
        "001 §3.2.3, 004",
        "A random decoder that appends 8 channels of position to 24 of a word is rebuilt as one that adds: words padded with zeros, and a table that "
        "is zero where words are. All logits are compared in float64.",
        (
            control("before", "at least", 1e-3, "the largest difference of a logit before the weights are set"),
            core("after", "at most", budget(SHAPE.length), "the largest difference of a logit after"),
        ),
        exact=concat_found,
    ),
    Claim(
        "orthogonal",
        "Word and position subspaces are nearly orthogonal in high dimension.",
        "在高维空间中，词向量子空间与位置编码子空间近似正交。",
        "001 §3.2.3",
        f"{WORDS} random words and the sinusoidal codes of {PLACES} places at width 768: the cosines of words with codes, and the smallest angle "
        "between the spaces that they span.",
        (
            core("vectors", "at most", 0.1, "the mean cosine of a word with a code, without its sign,"),
            limit("spaces", "at most", 0.1, "the cosine of the smallest angle between the two spaces"),
            limit(
                "trained",
                "at most",
                0.1,
                "the mean cosine of a word with a place in trained models with a learned table, without its sign,",
            ),
        ),
        exact=orthogonal_found,
        trained=trained_angles_found,
        needs=(TABLES,),
    ),
    Claim(
        "learned-ends",
        "Learned tables cannot pass their end.",
        "可学习的位置表无法超出其末尾。",
        "001 §3.3, 002",
        "Positions inside a learned table and from its end up to 1,048,575 are asked for, of the encoding and of a whole model.",
        (
            control("inside", "at least", 1.0, "the share of positions inside the table that are taken"),
            core("past", "at most", 0.0, "the share of positions past its end that are taken"),
            core("told", "at least", 4.0, "the number of errors, of four, that say so"),
        ),
        exact=ends_found,
    ),
)
