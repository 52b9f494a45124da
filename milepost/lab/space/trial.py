"""Trial: one model of images trained and measured, as plain data. A loss that is no number ends it, and is its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.lab import saved
from milepost.lab.kinds import Tell, Trial
from milepost.lab.space import measure
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.plan import ImagePlan
from milepost.lab.space.views import cut, moved, sized
from milepost.lab.sweep import together
from milepost.lab.train import Batches, Diverged, Recipe, labels, train
from milepost.lab.trial import cost_of, news_of

Numbers = np.ndarray[Any, Any]


def run(plan: ImagePlan, trial: Trial, folder: Path, tell: Tell = lambda news: None) -> dict[str, Any]:
    """Train and measure. What it returns is all that a report needs; the model stays in ``folder``, and ``*.pt`` to go on from."""
    folder.mkdir(parents=True, exist_ok=True)
    model = Encoder(plan.shape, trial.encoding).start(trial.seed)
    base = {
        "encoding": trial.encoding, "spec": repr(model.encodings[0]), "seed": trial.seed, "data": trial.data, "trained_size": list(plan.size),
        "trained_grid": list(plan.shape.sides), "parameters": model.count(), "folder": trial.key,
    }  # fmt: skip
    data = plan.read()
    pixels = sized(data.train, plan.size)
    middle, spread = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True).clamp(min=1e-6)
    recipe = Recipe(plan.steps, plan.rows, len(cut(pixels[:1], plan.patch)[0]), seed=trial.seed, decay_encoding=False)
    try:
        batches = views(pixels, (middle, spread), data.train_labels, plan.patch, recipe)
        learned = train(model, batches, recipe, state=folder / "state.pt", tell=news_of(recipe, tell), lost=labels)
    except Diverged as error:
        return {
            "trial": base,
            "runs": [
                {**base, "strategy": "none", "accuracy_by_size": [], "train_tokens_per_s": None, "failed": str(error)}
            ],
        }
    if together.is_main():
        about = {"classes": list(data.classes), "patch": plan.patch, "size": list(plan.size)}
        colours = {"mean": middle.flatten().tolist(), "std": spread.flatten().tolist()}
        saved.save_encoder(model, folder, seed=trial.seed, steps=plan.steps, data=trial.data, **about, **colours)
    seen = {size: (sized(data.test, size) - middle) / spread for size in {*plan.sizes, plan.size}}
    runs: list[dict[str, Any]] = []
    for name in plan.strategies:
        if measure.applies(name, model):
            tell({"measuring": name})
            found = measure.by_size(plan, model, seen, data.test_labels, name)
            maps = {"similarity": measure.similarity(model, cut(seen[plan.size], plan.patch))} if name == "none" else {}
            runs.append({**base, **cost_of(learned), "strategy": name, **found, **maps})
    return {"trial": base, "runs": runs}


def views(pixels: Tensor, scale: tuple[Tensor, Tensor], wanted: Numbers, patch: int, recipe: Recipe) -> Batches:
    """Views of images drawn by chance, the same for every model of a seed; ``scale`` is the mean and the spread of their pixels."""

    def batch(step: int) -> tuple[Numbers, Numbers]:
        rng = np.random.default_rng((recipe.seed, step))
        drawn = rng.integers(0, len(pixels), recipe.rows)
        seen = moved(pixels[torch.from_numpy(drawn)], rng)
        return cut((seen - scale[0]) / scale[1], patch).numpy(), wanted[drawn]

    return batch
