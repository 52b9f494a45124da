"""Portrait: what an encoding looks like, as figures.

code        what each position adds to a zero embedding, or does to a vector of ones
similarity  how alike two positions are, by distance
bias        what is added to a logit, by distance and head, and as a matrix
wavelengths tokens in one turn of each pair, against the length
in space    for several axes: likeness and bias of every place on a plane with the place in its middle
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from milepost.attention import attend
from milepost.draw import Document, Figure, Mark, Section, picture
from milepost.encoding import Encoding, Sum
from milepost.positions import grid

if TYPE_CHECKING:
    from milepost.encodings.catalogue import Page

Kind = Literal["heat", "lines"]
AT_ONCE = 1 << 20
"""Numbers of keys that are turned at a time."""
RANDOM = 256 * 64
"""Random numbers behind a line of means: as many vectors as make that, so that it is as smooth for any size of head."""


@dataclass(frozen=True)
class Portrait:
    """An encoding's figures."""

    encoding: str
    length: int
    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        panels = [
            {
                "kind": figure.kind,
                "title": figure.title,
                "x_title": figure.x_title,
                "y_title": figure.y_title,
                "x": figure.x,
                "y": figure.y or None,
                "z": figure.z or None,
                "lines": figure.lines,
                "log_y": figure.log_y,
                "mark": figure.marks[0].at if figure.marks else None,
            }
            for figure in self.figures
        ]
        return {"encoding": self.encoding, "length": self.length, "panels": panels}

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return Document(self.encoding, inline=[Section("", figures=self.figures)]).fragment()


def portrait(enc: Encoding, length: int = 128, only: Kind | None = None) -> Portrait:
    """The pictures of ``enc`` over the first ``length`` positions (fewer where it ends sooner): all, or those of one
    kind.
    """
    if length < 2:
        raise ValueError(f"a portrait needs at least 2 positions, got {length}")
    whole = enc
    enc = enc.at(length) if enc.length_dependent else enc
    n = length if enc.end is None else min(length, enc.end)
    figures: list[Figure] = []
    with torch.no_grad():
        for part in enc.parts if isinstance(enc, Sum) else [enc]:
            assert isinstance(part, Encoding)
            if part.axes > 1:
                figures += _plane(part, n)
                continue
            figures += (
                _code(part, n, only)
                + _bias(part, n, only)
                + _content(part, n, only)
                + _states(part, n, only)
                + _shares(part, n, only)
                + _values(part, n, only)
                + (_wavelengths(part, n) if only != "heat" else [])
            )
    figures = [figure for figure in figures if only in (None, figure.kind)]
    if not figures and not enc.points:
        flat = [0.0] * n
        figures = [
            Figure(
                "lines",
                "No position enters: every distance is alike",
                "distance",
                "added to the logit",
                _numbers(n),
                lines={"all heads": flat},
            )
        ]
    return Portrait(repr(whole), n, tuple(figures))


def _numbers(n: int) -> list[float]:
    return [float(i) for i in range(n)]


def _code(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    pos = torch.arange(n)
    if "embed" in enc.points:
        code = enc.embed(torch.zeros(1, n, enc.width or 16, dtype=torch.float64), pos)[0][:, -(enc.width or 16) :]
        alike = (
            code @ code[n // 2] / code.norm(dim=-1).clamp(min=1e-12) / code[n // 2].norm().clamp(min=1e-12)
        ).tolist()
        lines = {f"with {n // 2}": alike}
        return [
            _heat("Code of each position", "channel", "position", code),
            Figure(
                "lines",
                "Similarity of codes",
                "position",
                "cosine",
                _numbers(n),
                lines=lines,
                marks=(Mark("x", float(n // 2), str(n // 2)),),
            ),
        ]
    if not {"query", "key"} & set(enc.points):
        return []
    size, heads = enc.head_dim or 16, enc.heads or 1
    ones = torch.ones(1, heads, n, size, dtype=torch.float64)
    q, k = enc.query(ones, pos)[0, 0], enc.key(ones, pos)[0, 0]
    if only == "heat":
        return [_heat("What a query of ones becomes", "channel", "position", q)]
    noise = torch.randn(max(16, RANDOM // size), size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = []
    rows = max(1, AT_ONCE // (heads * n * size))  # all at once would be 500 MB for grape's heads
    for some in torch.split(noise, rows):
        many = some[:, None, None].expand(-1, heads, n, -1)
        parts.append((enc.query(many[:, :, -1:], pos[-1:])[:, 0] * enc.key(many, pos)[:, 0]).sum(-1) / size)
    logits = torch.cat(parts)  # the last query to every key
    lines = {
        "ones with itself": ((q[-1] * k).sum(-1) / size).flip(0).tolist(),
        "random with itself": logits.mean(0).flip(0).tolist(),
    }
    return [
        _heat("What a query of ones becomes", "channel", "position", q),
        Figure(
            "lines",
            f"Logit of a vector with itself, query at {n - 1}",
            "distance",
            "logit / D",
            _numbers(n),
            lines=lines,
        ),
    ]


def _bias(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    if "bias" not in enc.points:
        return []
    heads = enc.heads or 1
    shown = sorted({round(h * (heads - 1) / max(1, min(heads, 8) - 1)) for h in range(min(heads, 8))})
    h, i, j = torch.tensor(shown)[:, None, None], torch.arange(n)[:, None], torch.arange(n)[None, :]
    figures = []
    if only != "heat":
        row = enc.bias(h, i[-1:], j).double().expand(len(shown), 1, n)[:, 0].flip(-1)
        lines = {f"head {head}": row[at].tolist() for at, head in enumerate(shown)}
        figures.append(Figure("lines", "Bias by distance", "distance", "added to the logit", _numbers(n), lines=lines))
    if only != "lines":
        head = shown[len(shown) // 2]
        middle = enc.bias(torch.tensor(head), i, j).double().expand(n, n)
        if enc.causal_only:
            middle = middle.masked_fill(j > i, float("nan"))
        figures.append(_heat(f"Bias of head {head}", "key position", "query position", middle))
    return figures


def _content(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    if "rescore" not in enc.points:
        return []
    heads, size = enc.heads or 1, enc.head_dim or 16
    generator = torch.Generator().manual_seed(0)
    q, k, last = (
        torch.randn(1, 1, many, size, generator=generator).expand(-1, heads, -1, -1) for many in (n, n, 4)
    )  # all heads alike: one is drawn

    def added(q: Tensor, pos: Tensor) -> Tensor:
        """What is added to the scores of head 0, for queries at these positions."""
        i, j = pos[None, None, :, None], torch.arange(n)[None, None, None, :]
        plain = (q @ k.transpose(-1, -2)).masked_fill(j > i, float("-inf"))
        added = (enc.rescore(plain, q, k, i, j) - plain)[0, 0] * size**-0.5
        return torch.where(added.isfinite(), added, torch.nan)  # hidden by the mask or by the encoding: a gap

    figures = []
    if only != "heat":
        rows = added(last, torch.full((4,), n - 1)).flip(-1).tolist()
        lines = {f"query {number}": [None if v != v else v for v in row] for number, row in enumerate(rows)}
        figures.append(
            Figure(
                "lines",
                f"Added score by distance, head 0, query at {n - 1}",
                "distance",
                "added to the logit",
                _numbers(n),
                lines=lines,
            )
        )
    if only != "lines":
        figures.append(
            _heat("Added score of one random text, head 0", "key position", "query position", added(q, torch.arange(n)))
        )
    return figures


def _states(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    """What features of random hidden states add."""
    if not enc.feature_count:
        return []
    heads, size, generator = enc.heads or 1, enc.head_dim or 16, torch.Generator().manual_seed(0)
    q, k = (torch.randn(4, heads, n, size, generator=generator) for _ in range(2))
    x = torch.randn(4, n, enc.width or 16, generator=generator)
    plain = (q @ k.mT)[:, 0] * size**-0.5
    added = attend(q, k, k, enc, features=enc.features(x, torch.arange(n)), details=True).logits[:, 0] - plain
    added = torch.where(added.isfinite(), added, torch.nan)
    figures = []
    if only != "heat":
        title = f"Added score by distance, head 0, query at {n - 1}"
        lines = {f"query {text}": rows[-1].flip(-1).tolist() for text, rows in enumerate(added)}
        figures.append(Figure("lines", title, "distance", "added to the logit", _numbers(n), lines=lines))
    if only != "lines":
        figures.append(_heat("Added score of one random text, head 0", "key position", "query position", added[0]))
    return figures


def _shares(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    """The weights where they are no softmax."""
    if "spread" not in enc.points:
        return []
    q, k = (torch.randn(1, 1, n, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    at = torch.arange(n)
    figures = []
    if only != "heat":
        logits = torch.tensor([-3.0, -1.0, 0.0, 1.0])[:, None, None, None].expand(4, 1, 1, n)
        rows = enc.spread(logits, at[None, None, -1:, None], at[None, None, None]).flatten(0, 2).flip(-1).tolist()
        lines = {f"logit {logit}": row for logit, row in zip((-3, -1, 0, 1), rows, strict=True)}
        title = "Weight by distance where all logits are alike"
        figures.append(Figure("lines", title, "distance", "weight", _numbers(n), lines=lines))
    if only != "lines":
        weights = attend(q, k, k, enc, details=True).weights[0, 0].masked_fill(at > at[:, None], torch.nan)
        figures.append(_heat("Weights of one random text", "key position", "query position", weights))
    return figures


def _values(enc: Encoding, n: int, only: Kind | None) -> list[Figure]:
    """What a value of ones is for a query, by distance."""
    if not {"value", "restore"} & set(enc.points):
        return []
    size, pos = enc.head_dim or 16, torch.arange(n)
    ones = torch.ones(1, 1, n, size, dtype=torch.float64)
    got = enc.restore(enc.value(ones, pos), torch.full((n,), n - 1))[0, 0].flip(0)
    figures = []
    if only != "heat":
        lines = {"ones with itself": (got.sum(-1) / got.norm(dim=-1) / size**0.5).tolist()}
        title = f"Similarity of a value with what the query at {n - 1} receives"
        figures.append(Figure("lines", title, "distance", "cosine", _numbers(n), lines=lines))
    if only != "lines":
        figures.append(_heat("What a query receives of a value of ones", "channel", "distance", got))
    return figures


def _wavelengths(enc: Encoding, n: int) -> list[Figure]:
    spectrum = getattr(enc, "spectrum", None)
    if spectrum is None:
        return []
    waves = [w for w in spectrum.wavelengths if w < float("inf")]
    lines = {"one turn": waves, f"length {n}": [float(n)] * len(waves)}
    return [
        Figure(
            "lines",
            "Wavelength of each pair against the length",
            "pair",
            "tokens",
            _numbers(len(waves)),
            lines=lines,
            log_y=True,
        )
    ]


CODES, ONES, BIAS = "cosine of codes", "logit / D of a vector of ones with itself", "bias"


def relations(enc: Encoding, pos: Tensor, place: int | None = None) -> list[tuple[str, Tensor]]:
    """What each of L places (axes 1 L) is to every other, wherever the encoding acts by position alone: words, and
    float64 of heads x L x L.

    Of ``one`` place alone to every other: heads x 1 x L.
    """
    many, pairs = pos.shape[-1], []
    here = slice(None) if place is None else slice(place, place + 1)
    if "embed" in enc.points:
        code = enc.embed(torch.zeros(1, many, enc.width or 16, dtype=torch.float64), pos)[0].double()
        unit = code / code.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        pairs.append((CODES, (unit[here] @ unit.T)[None]))
    if {"query", "key"} & set(enc.points):
        size, heads = enc.head_dim or 16, enc.heads or 1
        ones = torch.ones(1, dtype=torch.float64).expand(1, heads, many, size)
        pairs.append((ONES, (enc.query(ones[:, :, here], pos[..., here])[0] @ enc.key(ones, pos)[0].mT) / size))
    if "bias" in enc.points:
        h, i, j = torch.arange(enc.heads or 1)[:, None, None], pos[..., 0, here, None], pos[..., 0, None, :]
        pairs.append((BIAS, enc.bias(h, i, j).double().expand(enc.heads or 1, i.shape[-2], many)))
    return pairs


def _plane(enc: Encoding, n: int) -> list[Figure]:
    """What the place in the middle of a square of about ``n`` places is to all others; axes before the last two stand
    still.
    """
    side = max(2, int(n**0.5))
    rows, columns = (min(side, end) for end in (enc.sides or (side,) * enc.axes)[-2:])
    pos = grid(*(1,) * (enc.axes - 2), rows, columns)
    middle = (rows // 2) * columns + columns // 2
    where = f"with the place at row {rows // 2}, column {columns // 2}"
    figures: list[Figure] = []
    for what, matrix in relations(enc, pos, middle):
        for head in sorted({0, len(matrix) - 1}) if what == BIAS else [0]:
            title = {
                CODES: "Similarity of codes",
                ONES: "Logit / D of a vector of ones with itself, head 0",
                BIAS: f"Bias of head {head}",
            }[what]
            figures.append(_heat(f"{title}, {where}", "column", "row", matrix[head, 0].view(rows, columns)))
    frequencies = getattr(enc, "frequencies", None)
    if frequencies is not None and frequencies.dim() > 1:
        fast = (frequencies if frequencies.dim() == 2 else frequencies[:, 0]).double()
        waves = {f"axis {a}": (2 * torch.pi / w.abs()).tolist() for a, w in enumerate(fast)}
        lines = {name: [v if v < float("inf") else None for v in wave] for name, wave in waves.items()}
        figures.append(
            Figure(
                "lines",
                "Wavelength of each pair, by axis",
                "pair",
                "places",
                _numbers(fast.shape[1]),
                lines=lines,
                log_y=True,
            )
        )
    return figures


def _heat(title: str, x_title: str, y_title: str, z: Tensor) -> Figure:
    rows = [
        [None if v != v else v for v in row] for row in z.double().tolist()
    ]  # NaN is no JSON; None is drawn as a gap
    square = x_title in ("key position", "column")
    return Figure("heat", title, x_title, y_title, _numbers(z.shape[1]), _numbers(z.shape[0]), rows, square=square)


# -- as a page or a picture
# ---------------------------------------------------------------------------------------------


def document(pictures: Sequence[tuple[Portrait, Page | None]]) -> Document:
    """Title, formula, reference and figures of each encoding."""
    sections = [
        Section(
            about.title if about else drawn.encoding, drawn.encoding if about else "", drawn.figures,
            code=about.formula if about else "", facts=[("reference", about.reference)] if about else [],
        )
        for drawn, about in pictures
    ]  # fmt: skip
    title = pictures[0][0].encoding if len(pictures) == 1 else "Positional encodings"
    return Document(title, sections=sections)


def save(pictures: Sequence[tuple[Portrait, Page | None]], out: Path) -> Path:
    """Write ``out`` as its ending says: .html, or .png or .svg of one encoding."""
    picture.check_name(out)
    if len(pictures) != 1 and out.suffix != ".html":
        raise ValueError(f"{out.suffix} holds one encoding, {len(pictures)} were asked for; use .html for several")
    return picture.save(out, document(pictures), pictures[0][0].figures)
