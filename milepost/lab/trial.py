"""Trial: one model trained and measured, as plain data. A loss that is no number ends it, and is its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from milepost.lab import saved, strategies, tasks
from milepost.lab.kinds import Tell, Trial
from milepost.lab.measure import Texts, measured, tuned
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan
from milepost.lab.sweep import together
from milepost.lab.train import Batches, Diverged, Recipe, from_text, train

CURVE = 100
"""Points of the training's loss that are kept."""


def run(plan: Plan, trial: Trial, folder: Path, tell: Tell = lambda news: None) -> dict[str, Any]:
    """Train and measure. What it returns is all that a report needs; the model stays in ``folder``, and ``*.pt`` to go on from."""
    folder.mkdir(parents=True, exist_ok=True)
    model = Decoder(plan.shape, trial.encoding).start(trial.seed)
    base = {
        "encoding": trial.encoding, "spec": repr(model.encodings[0]), "seed": trial.seed, "data": trial.data, "trained_length": plan.shape.length,
        "parameters": model.count(), "folder": trial.key,
    }  # fmt: skip
    empty: dict[str, Any] = {"loss_by_length": [], "loss_by_position": [], "tasks": {}}
    recipe = Recipe(plan.steps, plan.rows, plan.shape.length, seed=trial.seed)
    text = plan.read() if trial.data == "text" else None
    batches: Batches = tasks.batches(trial.data, recipe) if text is None else from_text(text.train, recipe)
    try:
        learned = train(model, batches, recipe, state=folder / "state.pt", tell=news_of(recipe, tell))
    except Diverged as error:
        return {
            "trial": base,
            "runs": [{**base, "strategy": "none", **empty, "train_tokens_per_s": None, "failed": str(error)}],
        }
    if together.is_main():
        saved.save(model, folder, seed=trial.seed, steps=plan.steps, data=trial.data)
    cost = cost_of(learned)
    runs: list[dict[str, Any]] = []
    for name in plan.strategies if strategies.applies(trial.encoding, plan.shape) else ("none",):
        tell({"measuring": name})
        if text is None:
            runs.append({"strategy": name, "tasks": {trial.data: tasks.score(plan, trial, model, name)}})
            continue
        texts = Texts.of(plan, text)
        runs.append({"strategy": name, **measured(plan, trial, model, name, texts)})
        if plan.tune and name != "none":
            tell({"tuning": name})
            runs.append(
                {
                    "strategy": f"{name} tuned",
                    **tuned(plan, trial, model, name, texts, text.train, folder / f"tune-{name}.pt"),
                }
            )
    return {"trial": base, "runs": [{**base, **cost, **empty, **one} for one in runs]}


def cost_of(learned: dict[str, Any]) -> dict[str, Any]:
    """What a training took, and its loss along the way."""
    curve = [round(loss, 5) for loss in learned["losses"][:: max(1, len(learned["losses"]) // CURVE)]]
    return {
        "train_tokens": learned["tokens"],
        "train_tokens_per_s": learned["tokens_per_s"],
        "peak_mb": learned["peak_mb"],
        "train_loss": curve,
    }


def news_of(recipe: Recipe, tell: Tell) -> Callable[[int, float, float], None]:
    """News of a step: its loss, the speed, and the seconds that are left."""

    def told(step: int, loss: float, speed: float) -> None:
        left = (recipe.steps - step) * recipe.rows * recipe.length / speed
        tell({"step": step, "of": recipe.steps, "loss": loss, "tokens_per_s": speed, "seconds_left": left})

    return told


def threads(count: int) -> None:
    """Use so many threads, and be deterministic."""
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(True, warn_only=True)
