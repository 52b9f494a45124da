"""Measure: how often a trained model is right at each size, and what its patches are to each other, as plain data.

accuracy_by_size    the same test images at every size; a table that ends before the last patch is recorded as such
similarity          for some patches, a map over all others: by the encoding alone, and by the model's attention
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import attend
from milepost.encoding import parts_of
from milepost.lab.space.comparisons import paired
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.space.views import cut
from milepost.layout import Layout
from milepost.measure.intervals import share
from milepost.portrait import relations
from milepost.positions import grid

Numbers = np.ndarray[Any, Any]
Row = dict[str, Any]
AT_ONCE = 1 << 14
"""Tokens in one call of the model."""
LOOKED_AT, SOME = 64, 8
"""Images that maps of attention are made of, and how many of them are looked at at once."""
MOST_PATCHES = 8
"""Patches of each axis that have a map."""
ATTENTION = "attention of the trained model"
NOTHING = "no position enters"
NO_ACCURACY: Row = {**dict.fromkeys(("accuracy", "low", "high", "loss")), "images": 0}


def by_size(
    plan: ImagePlan, model: Encoder, seen: dict[tuple[int, int], Tensor], labels: Numbers, strategy: str
) -> Row:
    """Accuracy at each size, and which images were right (a text of 0 and 1), for paired differences.

    ``seen`` holds the test images at each size.
    """
    rows, right = [], {}
    for size in plan.sizes:
        sides = plan.grid(size)
        reader = model.on_grid(*sides)
        about = {"size": list(size), "grid": list(sides), "times": sides[0] / plan.shape.sides[0]}
        if reader.ends():
            rows.append({**about, **NO_ACCURACY, "note": "table ends"})
            continue
        hit, loss = answers(reader, cut(seen[size], plan.patch), labels, grid_positions(plan, sides, strategy))
        if not math.isfinite(loss):
            rows.append({**about, **NO_ACCURACY, "note": "the loss is no number"})
            continue
        rate = share(int(hit.sum()), len(hit))
        interval = {"accuracy": rate.value, "low": rate.low, "high": rate.high}
        rows.append({**about, **interval, "loss": loss, "images": rate.tokens})
        right[_name(size)] = "".join(map(str, hit.astype(int)))
    if _name(plan.size) in right:
        for row in rows:
            if (mine := right.get(_name(row["size"]))) is not None:
                change = paired(right[_name(plan.size)], mine)
                row |= {"change": change["difference"], "change_low": change["low"], "change_high": change["high"]}
    return {"accuracy_by_size": rows, "right_by_size": right}


def grid_positions(plan: ImagePlan, sides: tuple[int, int], strategy: str) -> Tensor:
    """The positions that an encoding gets on a grid: (2 1 L)."""
    if strategy == "none":
        return grid(*sides)
    ratio = torch.tensor(plan.shape.sides, dtype=torch.float64) / torch.tensor(sides, dtype=torch.float64)
    return (grid(*sides).double() + 0.5) * ratio[:, None, None] - 0.5


def applies(strategy: str, model: Encoder) -> bool:
    """Whether a strategy is for this model: `linear` is for positions on several axes that need not be whole."""
    enc = model.encodings[0]
    return strategy == "none" or (enc.axes > 1 and all(part.fractional for part in parts_of(enc)))


@torch.no_grad()
def answers(model: Encoder, tokens: Tensor, labels: Numbers, pos: Tensor) -> tuple[Numbers, float]:
    """Which images (N L channels) are classified right, and the mean loss in nats."""
    hit, loss, step = [], 0.0, max(1, AT_ONCE // tokens.shape[1])
    for first in range(0, len(tokens), step):
        logits = model(tokens[first : first + step].to(model.device), pos.to(model.device)).double().cpu()
        wanted = torch.from_numpy(labels[first : first + step])
        hit.append((logits.argmax(-1) == wanted).numpy())
        loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
    return np.concatenate(hit), loss / len(tokens)


def _name(size: Any) -> str:
    return f"{size[0]}x{size[1]}"


@torch.no_grad()
def similarity(model: Encoder, tokens: Tensor) -> Row:
    """Maps of the trained grid for some patches: means over layers and heads, and for attention over images too."""
    rows, columns = model.shape.sides
    chosen = [(r, c) for r in _spread(rows) for c in _spread(columns)]
    numbers = [r * columns + c for r, c in chosen]
    places, dense = grid(rows, columns), Layout.dense(rows * columns).pos
    held: dict[str, list[Tensor]] = {}
    for enc in model.encodings:
        for part in parts_of(copy.deepcopy(enc).cpu()):
            for what, matrix in relations(part.at(rows * columns), places if part.axes == 2 else dense):
                held.setdefault(what, []).append(matrix.mean(0))
    if not any(enc.points for enc in model.encodings):
        held[NOTHING] = [torch.zeros(rows * columns, rows * columns)]
    held[ATTENTION] = [
        attend(q, k, k, enc, at=at, turned=True, causal=False, details=True).weights.double().mean((0, 1)).cpu()
        for some in torch.split(tokens[:LOOKED_AT], SOME)
        for q, k, enc, at in model.looks(some.to(model.device))
    ]
    maps = [{"what": what, "values": _rounded(torch.stack(layers).mean(0)[numbers])} for what, layers in held.items()]
    return {"grid": [rows, columns], "patches": [list(patch) for patch in chosen], "maps": maps}


def _spread(side: int) -> list[int]:
    """At most so many places of an axis, evenly spread."""
    many = min(side, MOST_PATCHES)
    return sorted({round(n * (side - 1) / max(1, many - 1)) for n in range(many)})


def _rounded(values: Tensor) -> list[list[float]]:
    """Four digits, which a picture shows at most."""
    return [[float(f"{v:.4g}") for v in row] for row in values.double().tolist()]
