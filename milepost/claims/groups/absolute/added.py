"""Added codes: adding or appending them, and tables that are learned."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    Plot,
    control,
    core,
    gaussian,
    limit,
    max_abs,
    mean_of_seeds,
    points,
)
from milepost.encodings.learned import Learned
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.lab.model import Decoder, Shape
from milepost.testing.layer import budget

SHAPE = Shape(vocabulary=64, layers=2, width=32, heads=4, length=48)
APPENDED = 8
WIDTHS = (32, 64, 128, 256, 512, 768, 1024, 2048)
WORDS, PLACES = 512, 512
TABLES = Need("text", ("learned",), weights=True)


def measure_concat() -> Measurement:
    """A model that appends codes, and one that adds them and is zero wherever the other has nothing."""
    appending = Decoder(SHAPE, f'sinusoidal(width={APPENDED}, how="concat")').start(0).double().eval()
    adding = Decoder(SHAPE, "learned").start(1).double().eval()
    words = torch.zeros(1, SHAPE.length, SHAPE.width - APPENDED, dtype=torch.float64)
    table = appending.encodings[0].embed(words, torch.arange(SHAPE.length))[0] / appending.code_spread
    weights = {name: value for name, value in appending.state_dict().items() if ".enc." not in name}
    weights["tokens.weight"] = F.pad(appending.tokens.weight, (0, APPENDED))
    ids = torch.randint(SHAPE.vocabulary, (4, SHAPE.length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = max_abs(adding(ids) - appending(ids))
        adding.load_state_dict({**weights, "blocks.0.enc.table": table})
        after = max_abs(adding(ids) - appending(ids))
    names, differences = ["random weights", "weights as constructed"], {"difference": [before, after]}
    title, axis = "An adding model against a concatenating one", "largest difference of a logit"
    return Measurement({"before": before, "after": after}, (Plot("points", title, "", axis, names, differences),))


def angles(words: torch.Tensor, codes: torch.Tensor) -> tuple[float, float]:
    """The mean absolute cosine of a word and a code; and the cosine of the smallest angle between their two spans."""
    w, c = (F.normalize(x, dim=-1) for x in (words, codes))
    bases = []
    for x in (words, codes):
        _, s, v = torch.linalg.svd(x, full_matrices=False)
        bases.append(v[s > 1e-6 * s[0]])
    return float((w @ c.T).abs().mean()), float(torch.linalg.svdvals(bases[0] @ bases[1].T)[0])


def measure_orthogonal() -> Measurement:
    """Random words and sinusoidal codes, by width."""
    by_width = {
        width: angles(gaussian(WORDS, width, seed=1), Sinusoidal(width).code(torch.arange(PLACES))) for width in WIDTHS
    }
    lines = {
        name: [pair[n] for pair in by_width.values()]
        for n, name in enumerate(("mean of a word and a code", "nearest directions of the two spaces"))
    }
    title = f"{WORDS} random words and {PLACES} sinusoidal codes"
    figure = Plot("lines", title, "width", "cosine", WIDTHS, lines, log_x=True, mark=0.1)
    return Measurement(dict(zip(("vectors", "spaces"), by_width[768], strict=True)), (figure,))


def measure_trained_angles(lab: Lab) -> Measurement:
    """Words and positions of trained models with a learned table."""
    weights = [(model.tokens.weight, model.encodings[0].table) for model in lab.models(TABLES, "learned")]
    detached = [[x.detach().double() for x in pair] for pair in weights]  # type: ignore[operator]
    by_model = [angles(*pair) for pair in detached]
    number = mean_of_seeds([cosine for cosine, _ in by_model], None, None, "all words and places")
    nearest = max(space for _, space in by_model)
    note = f"in trained models the smallest angle between the spaces of words and positions has cosine {nearest:.2g}"
    figure = points("Mean cosine of a word and a position, trained", "cosine", {"learned": number}, 0.1)
    return Measurement({"trained": number}, (figure,), (note,))


def measure_ends() -> Measurement:
    """Positions inside a learned table and past its end, in the encoding and in a whole model."""
    length = SHAPE.length
    enc, model = Learned(length, 8), Decoder(SHAPE, "learned").start(0).eval()
    inside: list[bool] = []
    past: list[bool] = []
    messages = 0
    for position in (0, 1, length - 1, length, length + 1, 2 * length, 1048575):
        accepted = inside if position < length else past
        try:
            enc.embed(torch.zeros(1, 1, 8), torch.tensor([position]))
            accepted.append(True)
        except ValueError as error:
            accepted.append(False)
            messages += "past the end" in str(error)
        if position < 4 * length:
            try:
                with torch.no_grad():
                    model(torch.zeros(1, position + 1, dtype=torch.long))
                accepted.append(True)
            except ValueError:
                accepted.append(False)
    shares = {"inside": sum(inside) / len(inside), "past": sum(past) / len(past)}
    title, names = f"Positions that a table of {length} rows accepts", ["inside", "past the end"]
    figure = Plot("points", title, "", "share accepted", names, {"share": list(shares.values())})
    return Measurement({**shares, "told": float(messages)}, (figure,))


CLAIMS = (
    Claim(
        "add-vs-concat",
        "Concatenation is a special case of addition.",
        "拼接是加法的一种特殊情况。",
        "001 §3.2.3, 004",
        "A random decoder that appends 8 position channels to 24 word channels is rebuilt as one that adds: words are "
        "padded with zeros, and the table is zero where the words are. All logits are compared in float64.",
        (
            control("before", "at least", 1e-3, "the largest difference of a logit before the weights are set"),
            core("after", "at most", budget(SHAPE.length), "the largest difference of a logit after that"),
        ),
        exact=measure_concat,
    ),
    Claim(
        "orthogonal",
        "Word and position subspaces are nearly orthogonal in high dimension.",
        "在高维空间中，词向量子空间与位置编码子空间近似正交。",
        "001 §3.2.3",
        f"{WORDS} random words and the sinusoidal codes of {PLACES} positions at width 768: the cosines of words with "
        "codes, and the smallest angle between the spaces that they span.",
        (
            core("vectors", "at most", 0.1, "the mean absolute cosine of a word with a code"),
            limit("spaces", "at most", 0.1, "the cosine of the smallest angle between the two spaces"),
            limit(
                "trained",
                "at most",
                0.1,
                "the mean absolute cosine of a word with a position in trained models with a learned table",
            ),
        ),
        exact=measure_orthogonal,
        trained=measure_trained_angles,
        needs=(TABLES,),
    ),
    Claim(
        "learned-ends",
        "Learned tables cannot pass their end.",
        "可学习的位置表无法超出其末尾。",
        "001 §3.3, 002",
        "The encoding and a whole model are asked for positions inside a learned table, and from its end up to "
        "1,048,575.",
        (
            control("inside", "at least", 1.0, "the share of positions inside the table that are accepted"),
            core("past", "at most", 0.0, "the share of positions past its end that are accepted"),
            core("told", "at least", 4.0, "the number of the four errors that name the end of the table"),
        ),
        exact=measure_ends,
    ),
)
