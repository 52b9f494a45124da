"""A trial on text, or on a task: one Decoder trained and measured under every strategy, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from milepost.lab import strategies, tasks
from milepost.lab.corpus import Corpus
from milepost.lab.measure import Texts, measure_strategy, measure_tuned
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.task_scores import score
from milepost.lab.train import Diverged, Loss, Recipe, from_text, next_tokens, train
from milepost.lab.trial import Run, Tell, Trial, train_and_measure
from milepost.measure.losses import token_losses

Numbers = np.ndarray[Any, Any]


TRIED = 8
"""A rate is tried for a share of the steps, one in so many."""
HELD_OUT = 16
"""One token in so many of the training text, the last ones, is what rates are judged by."""


def try_rates(plan: TextPlan, trial: Trial, row: Numbers, folder: Path, tell: Tell) -> list[dict[str, float]]:
    """The loss under each of the plan's rates after a short training, on training text that it did not read.

    Nothing of the test files is looked at. Empty where the plan has one rate. A killed search resumes where it was.
    """
    if len(plan.rates) < 2:
        return []
    edge, length = len(row) - len(row) // HELD_OUT, plan.shape.length
    starts = np.linspace(edge, len(row) - length - 1, plan.windows).astype(np.int64)
    windows = np.stack([row[start : start + length + 1] for start in starts])
    folder.mkdir(parents=True, exist_ok=True)
    tried = []
    for rate in plan.rates:
        tell({"trying": f"rate {rate:g}"})
        recipe = Recipe(max(1, plan.steps // TRIED), plan.rows, length, rate, trial.seed, plan.bfloat16)
        model = Decoder(plan.shape_of(trial), trial.spec).start(trial.seed)
        try:
            train(model, from_text(row[:edge], recipe), recipe, state=folder / f"rate-{rate:g}.pt", loss=_loss(plan))
        except Diverged:
            continue  # a rate that is too large is not taken
        tried.append({"rate": rate, "loss": float(token_losses(model, windows).mean())})
    return tried


def _loss(plan: TextPlan) -> Loss:
    """The loss of next tokens, where texts are told what the plan says."""
    return partial(next_tokens, told=plan.told, limit=plan.longest)


def _strategies(plan: TextPlan, trial: Trial) -> tuple[str, ...]:
    """What is done to the trained model at test time: a control is there for its loss alone."""
    return plan.strategies if not trial.as_large_as and strategies.applies(trial.spec, plan.shape) else ("none",)


def run_text_trial(
    plan: TextPlan, trial: Trial, folder: Path, tell: Tell = lambda news: None, data: Corpus | None = None
) -> dict[str, Any]:
    """Train and measure; see `train_and_measure`. ``data`` is the plan's text, where it has been read already."""
    text = (plan.read() if data is None else data) if trial.data == "text" else None
    rates = [] if text is None else try_rates(plan, trial, text.train, folder, tell)
    rate = min(rates, key=lambda tried: tried["loss"])["rate"] if rates else 1.0
    model = Decoder(plan.shape_of(trial), trial.spec).start(trial.seed)
    recipe = Recipe(plan.steps, plan.rows, plan.shape.length, rate=rate, seed=trial.seed, bfloat16=plan.bfloat16)
    batches = tasks.batches(trial.data, recipe) if text is None else from_text(text.train, recipe)

    def measure() -> Iterator[Run]:
        texts = None if text is None else Texts.of(plan, text)
        second = None if text is None or text.second is None else Texts.of(plan, text.second)
        for name in _strategies(plan, trial):
            tell({"measuring": name})
            if text is None or texts is None:
                yield {"strategy": name, "tasks": {trial.data: score(plan, trial, model, name)}}
                continue
            yield {"strategy": name, **measure_strategy(plan, trial, model, name, texts, second)}
            if plan.tune and name != "none":
                tell({"tuning": name})
                state = folder / f"tune-{name}.pt"
                tuned = measure_tuned(plan, trial, model, name, texts, text.train, state)
                yield {"strategy": f"{name} tuned", **tuned}

    about = {"trained_length": plan.shape.length, "rate": rate, "rates": rates, "told": plan.told}
    empty: Run = {"loss_by_length": [], "loss_by_position": [], "tasks": {}}
    return train_and_measure(
        trial, model, folder, recipe, batches, _loss(plan), measure, tell, about=about, empty=empty
    )
