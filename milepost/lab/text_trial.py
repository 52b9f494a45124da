"""A trial on text, or on a task: one Decoder trained and measured under every strategy, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from milepost.lab import strategies, tasks
from milepost.lab.measure import Texts, measure_strategy, measure_tuned
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.tasks.scoring import score
from milepost.lab.train import Recipe, from_text, next_tokens
from milepost.lab.trial import Run, Tell, Trial, train_and_measure


def run_text_trial(plan: TextPlan, trial: Trial, folder: Path, tell: Tell = lambda news: None) -> dict[str, Any]:
    """Train and measure; see `train_and_measure`."""
    model = Decoder(plan.shape, trial.encoding).start(trial.seed)
    recipe = Recipe(plan.steps, plan.rows, plan.shape.length, seed=trial.seed)
    text = plan.read() if trial.data == "text" else None
    batches = tasks.batches(trial.data, recipe) if text is None else from_text(text.train, recipe)

    def measure() -> Iterator[Run]:
        texts = None if text is None else Texts.of(plan, text)
        for name in plan.strategies if strategies.applies(trial.encoding, plan.shape) else ("none",):
            tell({"measuring": name})
            if text is None or texts is None:
                yield {"strategy": name, "tasks": {trial.data: score(plan, trial, model, name)}}
                continue
            yield {"strategy": name, **measure_strategy(plan, trial, model, name, texts)}
            if plan.tune and name != "none":
                tell({"tuning": name})
                state = folder / f"tune-{name}.pt"
                tuned = measure_tuned(plan, trial, model, name, texts, text.train, state)
                yield {"strategy": f"{name} tuned", **tuned}

    about = {"trained_length": plan.shape.length}
    empty: Run = {"loss_by_length": [], "loss_by_position": [], "tasks": {}}
    return train_and_measure(
        trial, model, folder, recipe, batches, next_tokens, measure, tell, about=about, empty=empty
    )
