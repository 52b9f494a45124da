"""sight: small vision models, trained at one size and tested at others, on the very same images.

    another size    half and twice the trained one, on each side
    one row         a learned table of one axis at another size: as it is where it is long enough, or resampled along
                    its row
    two axes        a learned table is resampled on its grid; sinusoids, axial and mixed rope get the positions of the
                    new grid, or those positions scaled to the trained grid
    ahead           how much more often a model of two axes is right than that of one, image by image; intervals over
                    images and over seeds

Where there are two ways, the one that is right more often counts. At the trained size the two learned tables are the
same model: there only the formulas can be ahead. Patches need a 2-D scheme there if it is right for more than 2% more
of the images: less counts as nothing, as in `recommend`. Results at other sizes differ from seed to seed, so models are
trained from six.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from milepost.claims.experiment import (
    LEAD,
    SHARE,
    Lab,
    Measurement,
    Need,
    NotMeasured,
    Number,
    Plot,
    Run,
    least,
    mean_over,
    points,
)
from milepost.encodings.learned import Learned
from milepost.encodings.resize_table import resize_table
from milepost.lab.checkpoint import load_encoder
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.image_measure import answers
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.space.images import Images
from milepost.lab.space.views import cut, sized
from milepost.positions import grid

ROW, GRID = "learned", "grid"
FORMULAS = ("sinusoidal_nd", "axial(base=100.0)", "mixed")
SIGHT = Need("image", (ROW, GRID, *FORMULAS), "image")
Size = tuple[int, int]
Right = np.ndarray
"""Seeds x images: 1 where the answer is right."""


def measure_sight(lab: Lab) -> Measurement:
    """How far 2-D schemes are ahead of a 1-D table at the trained size, at half of it and at twice."""
    plan, runs = lab.pictures(), {name: lab.runs(SIGHT, name) for name in SIGHT.encodings}
    home, others = plan.size, {"half": plan.sizes[0], "twice": plan.sizes[-1]}
    right = {name: {home: _right(some, home)} for name, some in runs.items()}
    resampled = _resampled(plan, lab.folders(SIGHT, ROW), list(others.values()))
    for size in others.values():
        as_it_is = _right(runs[ROW], size) if _reads(runs[ROW], size) else resampled[size]
        right[ROW][size] = better(resampled[size], as_it_is)
        right[GRID][size] = _right(runs[GRID], size)
        for name in FORMULAS:
            right[name][size] = better(_right(runs[name], size), _right(lab.runs(SIGHT, name, "linear"), size))
    numbers = {"learned": mean_over(right[ROW][home], "images", ends=SHARE)}
    for word, size in {"home": home, **others}.items():
        leads = {name: ahead(right[ROW][size], right[name][size]) for name in (GRID, *FORMULAS)}
        numbers |= {word: leads[GRID], f"{word}, least": least(leads[name] for name in FORMULAS)}
    sizes = sorted((home, *others.values()))
    lines = {name: [float(by_size[size].mean()) for size in sizes] for name, by_size in right.items()}
    title = f"Right answers by size; trained at {home[0]} pixels"
    shown = {"trained size": numbers["home"], **{f"{word} the size": numbers[word] for word in others}}
    figures = (
        Plot("lines", title, "pixels of a side", "share", [size[0] for size in sizes], lines),
        points("A 2-D learned table against a 1-D one", "share of images", shown, 0.0),
    )
    return Measurement(numbers, figures, _ends(runs[ROW]))


def ahead(table: Right, other: Right) -> Number:
    """How much more often ``other`` is right than ``table``, seed by seed and image by image."""
    if table.shape != other.shape:
        raise NotMeasured(
            f"the two were not tested on the same images and from the same seeds: {table.shape} and {other.shape}"
        )
    return mean_over(other - table, "images", ends=LEAD)


def better(one: Right, other: Right) -> Right:
    """The answers that are right more often."""
    return max(one, other, key=lambda right: float(right.mean()))


def in_one_row(model: Encoder, sides: Size) -> Encoder:
    """A model with a learned 1-D table for another grid: the table is resampled along its one row."""
    made = model.on_grid(*sides)
    table = model.encodings[0]
    assert isinstance(table, Learned) and table.width is not None
    longer = Learned(sides[0] * sides[1], table.width)
    with torch.no_grad():
        longer.table.copy_(resize_table(table.table, source=(table.length,), target=(longer.length,)))
    made.blocks[0].enc = longer
    return made.eval()


def _resampled(plan: ImagePlan, folders: Sequence[Path], sizes: Sequence[Size]) -> dict[Size, Right]:
    """The answers of the models of these folders at other sizes, with their tables resampled."""
    data: Images = plan.read()
    right: dict[Size, list[np.ndarray]] = {size: [] for size in sizes}
    for folder in folders:
        model, about = load_encoder(folder), json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
        middle, spread = (torch.tensor(about[word])[None, :, None, None] for word in ("mean", "std"))
        for size in sizes:
            sides = plan.grid(size)
            seen = cut((sized(data.test, size) - middle) / spread, plan.patch)
            right[size].append(answers(in_one_row(model, sides), seen, data.test_labels, grid(*sides))[0])
    return {size: np.array(by_model).astype(float) for size, by_model in right.items()}


def _reads(runs: list[Run], size: Size) -> bool:
    return all(f"{size[0]}x{size[1]}" in run["right_by_size"] for run in runs)


def _right(runs: list[Run], size: Size) -> Right:
    if not _reads(runs, size):
        raise NotMeasured(f"{runs[0]['encoding']} has no answers for images of {size[0]} x {size[1]} pixels")
    return np.array([[float(letter) for letter in run["right_by_size"][f"{size[0]}x{size[1]}"]] for run in runs])


def _ends(runs: list[Run]) -> tuple[str, ...]:
    """A note of the sizes for which a 1-D table is too short."""
    rows = [row for row in runs[0]["accuracy_by_size"] if row.get("note") == "table ends"]
    sizes = " and ".join(" x ".join(map(str, row["size"])) for row in rows)
    return (f"as it is, the 1-D table ends before the last patch of images of {sizes} pixels",) if rows else ()
