"""A trial on images: one Encoder trained at one size and measured at others, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.lab.space import image_measure as measures
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.space.views import cut, moved, sized
from milepost.lab.train import Batches, Recipe, labels
from milepost.lab.trial import Run, Tell, Trial, train_and_measure

Numbers = np.ndarray[Any, Any]


def run_image_trial(
    plan: ImagePlan, trial: Trial, folder: Path, tell: Tell = lambda news: None, data: Any = None
) -> dict[str, Any]:
    """Train and measure; see `train_and_measure`. ``data`` is the plan's images, where they have been read already."""
    model = Encoder(plan.shape, trial.spec).start(trial.seed)
    data = plan.read() if data is None else data
    pixels = sized(data.train, plan.size)
    middle, spread = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True).clamp(min=1e-6)
    recipe = Recipe(plan.steps, plan.rows, len(cut(pixels[:1], plan.patch)[0]), seed=trial.seed, bfloat16=plan.bfloat16)
    batches = draw_views(pixels, (middle, spread), data.train_labels, plan.patch, recipe)

    def measure() -> Iterator[Run]:
        seen = {size: (sized(data.test, size) - middle) / spread for size in {*plan.sizes, plan.size}}
        for name in plan.strategies:
            if measures.applies(name, model):
                tell({"measuring": name})
                run = {"strategy": name, **measures.by_size(plan, model, seen, data.test_labels, name)}
                if name == "none":
                    run["similarity"] = measures.similarity(model, cut(seen[plan.size], plan.patch))
                yield run

    about = {"trained_size": list(plan.size), "trained_grid": list(plan.shape.sides)}
    saved = {
        "classes": list(data.classes),
        "patch": plan.patch,
        "size": list(plan.size),
        "mean": middle.flatten().tolist(),
        "std": spread.flatten().tolist(),
    }
    empty: Run = {"accuracy_by_size": []}
    return train_and_measure(
        trial, model, folder, recipe, batches, labels, measure, tell, about=about, empty=empty, saved=saved
    )


def draw_views(pixels: Tensor, scale: tuple[Tensor, Tensor], wanted: Numbers, patch: int, recipe: Recipe) -> Batches:
    """Views of images drawn by chance, the same for every model of a seed; ``scale`` is the pixels' mean and spread."""

    def batch(step: int) -> tuple[Numbers, Numbers]:
        rng = np.random.default_rng((recipe.seed, step))
        drawn = rng.integers(0, len(pixels), recipe.rows)
        seen = moved(pixels[torch.from_numpy(drawn)], rng)
        return cut((seen - scale[0]) / scale[1], patch).numpy(), wanted[drawn]

    return batch
