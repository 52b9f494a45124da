"""Trial: one model of a lab run, as data; and the way that all trials go, whatever their models read.

A trial trains its model, saves it, and measures it. A loss that is no number ends the training, and is the trial's
result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.lab import checkpoint
from milepost.lab.model import Decoder
from milepost.lab.space.encoder import Encoder
from milepost.lab.train import Batches, Diverged, Loss, Recipe, is_main_process, train

Run = dict[str, Any]
Tell = Callable[[dict[str, Any]], None]
AS_LARGE_AS = " as large as "
CURVE = 100
"""Points of the training loss that a result holds, each a mean of equally many steps."""


@dataclass(frozen=True)
class Trial:
    """One model to train: an encoding, a seed, and what it reads ("text", a task, "image", ...).

    ``rope as large as deberta`` is a control: rope in a model that is wider by what deberta's own parameters are.
    """

    encoding: str
    seed: int
    data: str = "text"

    @property
    def spec(self) -> str:
        """The encoding to build."""
        return self.encoding.partition(AS_LARGE_AS)[0]

    @property
    def as_large_as(self) -> str:
        """The encoding whose model a control is as large as; "" where this is no control."""
        return self.encoding.partition(AS_LARGE_AS)[2]

    @property
    def key(self) -> str:
        """A name for its folder."""
        word = re.sub(r"[^a-z0-9]+", "-", f"{self.encoding}-{self.data}".lower()).strip("-")[:60]
        return f"{word}-{self.seed}-{hashlib.sha256(repr(self).encode()).hexdigest()[:6]}"


def train_and_measure(
    trial: Trial,
    model: Decoder | Encoder,
    folder: Path,
    recipe: Recipe,
    batches: Batches,
    loss: Loss,
    measure: Callable[[], Iterable[Run]],
    tell: Tell,
    *,
    about: Run,
    empty: Run,
    saved: Run | None = None,
) -> dict[str, Any]:
    """All that a report needs of one trial. The model stays in ``folder``, and ``*.pt`` to resume a killed trial from.

    ``about`` is part of every run, ``empty`` stands in for what a run does not have, and ``saved`` goes to the
    model's file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = {
        "encoding": trial.encoding,
        "spec": repr(model.encodings[0]),
        "seed": trial.seed,
        "data": trial.data,
        **about,
    }
    base |= {"parameters": model.count(), "encoding_parameters": model.count_encoding(), "folder": trial.key}

    def tell_step(step: int, value: float, speed: float) -> None:
        left = (recipe.steps - step) * recipe.rows * recipe.length / speed
        tell({"step": step, "of": recipe.steps, "loss": value, "tokens_per_s": speed, "seconds_left": left})

    try:
        trained = train(model, batches, recipe, state=folder / "state.pt", tell=tell_step, loss=loss)
    except Diverged as error:
        failure = {"strategy": "none", **empty, "train_tokens_per_s": None, "failed": str(error)}
        return {"trial": base, "runs": [{**base, **failure}]}
    if is_main_process():
        checkpoint.save(model, folder, seed=trial.seed, steps=recipe.steps, data=trial.data, **(saved or {}))
    losses = trained["losses"]
    cost = {
        "train_tokens": trained["tokens"],
        "train_tokens_per_s": trained["tokens_per_s"],
        "peak_mb": trained["peak_mb"],
        "train_loss": [round(sum(part) / len(part), 5) for part in stretches(losses)],
    }
    return {"trial": base, "runs": [{**base, **cost, **empty, **run} for run in measure()]}


def stretches(losses: list[float]) -> list[list[float]]:
    """The losses in `CURVE` stretches or fewer, all but the last equally long."""
    size = -(-len(losses) // CURVE)
    return [losses[first : first + size] for first in range(0, len(losses), size)]
