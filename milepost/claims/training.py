"""Training outside of the lab, for what the lab has no models or no tasks for: one loop, and results stored in files.

A finished measurement is a file in the folder of the claims, so that a resumed run does not repeat it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from milepost.claims.rule import Number
from milepost.lab.train import Recipe
from milepost.lab.training.optimizers import Optimizers
from milepost.measure.results import write_json


def fit(model: nn.Module, batch: Callable[[int], tuple[Tensor, Tensor]], recipe: Recipe) -> None:
    """Train in place: ``batch(step)`` gives tokens (B L) and the token wanted at each place (B L)."""
    optimizers = Optimizers(model)
    model.train()
    for step in range(recipe.steps):
        tokens, wanted = batch(step)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(recipe.rate_at(step))
    model.eval()


def measure_once(home: Path, name: str, measure: Callable[[], Number]) -> Number:
    """The number in ``home``/``name``.json; it is measured and written there if the file does not exist."""
    file = home / f"{name}.json"
    if not file.exists():
        write_json(file, measure().to_json())
    return Number(**json.loads(file.read_text(encoding="utf-8")))
