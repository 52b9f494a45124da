"""Probes: can a token's position be read from a state?

R² = 1 - (error of the probe)² / (spread of the positions)²,      on texts that the probe was not fitted to

A probe is a linear map of the state and of its squares. A state whose size grows with the position, in any direction,
is read by its squares; a map of the state alone can't see that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from milepost.claims.experiment import (
    WIDTH,
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    Numbers,
    RandomModel,
    core,
    fit,
    gaussian,
    limit,
    mean_of_seeds,
    measure_once,
    points,
)
from milepost.lab.corpus import batch
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.lab.train import Recipe
from milepost.measure.intervals import mean

NOPE = Need("text", ("nope",), weights=True)
PLACES, TEXTS = 64, 512
CARRIED = 0.5
"""The R² from which on a state counts as carrying the position."""
STARTS, FIRST = (1, 2, 3, 4, 5), 8
STEPS = {"quick": 300, "standard": 600}


def probe(states: Tensor, ridge: float = 1e-3) -> Number:
    """R² of a probe for the position of each state (texts L C): fitted on every other text, tested on the rest."""
    x = states.double()
    x = torch.cat([x, x**2, torch.ones_like(x[..., :1])], -1)
    places = torch.arange(x.shape[1], dtype=torch.float64).expand(x.shape[:2])
    fit_x, fit_y = x[::2].flatten(0, 1), places[::2].flatten()
    size = fit_x.T @ fit_x
    weights = torch.linalg.solve(
        size + ridge * size.diagonal().mean() * torch.eye(len(size), dtype=torch.float64), fit_x.T @ fit_y
    )
    error = ((x[1::2] @ weights - places[1::2]) ** 2).mean(1).numpy()  # of each text
    r2 = mean((1 - error / float(places[0].var(unbiased=False)))[:, None], np.arange(len(error)))
    return Number(r2.value, r2.low, r2.high, f"{len(error)} texts")


class Recurrent(nn.Module):
    """A language model of one GRU; ``states`` are its hidden states."""

    def __init__(self, width: int = 96):
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 256)

    def states(self, ids: Tensor) -> Tensor:
        """B L C."""
        states: Tensor = self.cell(self.tokens(ids))[0]
        return states

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.states(ids))
        return logits


def measure_untrained() -> Measurement:
    """Random GRUs and random causal Transformers without positions, on random words."""
    x = gaussian(TEXTS, PLACES, WIDTH, seed=2)
    cells, stacks = [], []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for start in STARTS:
            torch.manual_seed(start)
            cells.append(nn.GRU(WIDTH, WIDTH, batch_first=True).double()(x)[0])
            stacks.append(RandomModel(2, seed=start)(x, causal=True))
    numbers = {
        "GRU": _over_models(map(probe, cells)),
        "Transformer, 2 layers": _over_models(map(probe, stacks)),
        "words": probe(x),
    }
    near = _over_models(probe(states[:, :FIRST]) for states in cells)
    notes = (
        f"for the first {FIRST} positions alone the probe of untrained GRUs has R² {near.value:.2g}",
        f"for all {PLACES} the probe of untrained Transformers has R² {numbers['Transformer, 2 layers'].value:.2g}",
    )
    figure = points(f"R² of a probe for the position, {PLACES} positions, untrained", "R²", numbers, CARRIED)
    return Measurement({"untrained": numbers["GRU"]}, (figure,), notes)


def _train_recurrent(train: Numbers, ids: Tensor, seed: int, steps: int) -> Number:
    """R² of a probe of a GRU that was trained on text."""
    torch.manual_seed(seed)
    model = Recurrent()
    recipe = Recipe(steps, 32, PLACES, seed=seed)

    def read(step: int) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(batch(train, PLACES, recipe.rows, seed, step))
        return rows[:, :-1], rows[:, 1:]

    fit(model, read, recipe)
    with torch.no_grad():
        return probe(model.states(ids))


def measure_trained(lab: Lab) -> Measurement:
    """A GRU trained on the lab's text, and the lab's models without positions."""
    plan = lab.plans["text"]
    text = plan.read()
    ids = torch.from_numpy(Texts.of(plan, text).windows[:, :PLACES])
    models = lab.models(NOPE, "nope")
    by_seed = [
        measure_once(
            lab.home("gru"), f"seed-{seed}", partial(_train_recurrent, text.train, ids, seed, STEPS[lab.profile])
        )
        for seed in lab.seeds
    ]
    numbers = {"GRU, trained": _over_models(by_seed), "nope, trained": _probe_nope(models, ids)}
    figure = points("R² of a probe for the position, trained", "R²", numbers, CARRIED)
    return Measurement({"trained": numbers["GRU, trained"]}, (figure,))


def _probe_nope(models: list[Decoder], ids: Tensor) -> Number:
    """R² of a probe of the last layer's states of models without positions."""
    by_model = []
    for model in models:
        states: list[Tensor] = []
        hook = model.norm.register_forward_hook(lambda module, given, out, states=states: states.append(given[0]))
        with torch.no_grad():
            model(ids)
        hook.remove()
        by_model.append(probe(states[0]))
    return _over_models(by_model)


def _over_models(numbers: Iterable[Number]) -> Number:
    """The mean, with the widest of the models' intervals over texts."""
    known = list(numbers)
    low, high = min(number.sides[0] for number in known), max(number.sides[1] for number in known)
    return mean_of_seeds([number.value for number in known], low, high, known[0].over)


def measure_nope(lab: Lab) -> Measurement:
    """The position of tokens, read from trained models without positions."""
    plan = lab.plans["text"]
    ids = torch.from_numpy(Texts.of(plan, plan.read()).windows[:, : plan.shape.length])
    number = _probe_nope(lab.models(NOPE, "nope"), ids)
    figure = points("R² of a probe for the position, trained without positions", "R²", {"nope": number}, CARRIED)
    return Measurement({"probe": number}, (figure,))


CLAIMS = (
    Claim(
        "rnn",
        "A recurrent network carries position in its state for nothing.",
        "循环网络的状态天然携带位置信息。",
        "000 §2B",
        f"A probe, linear in a state and in its squares, reads the position, one of {PLACES}, from the states of "
        "random GRUs on random words, and of a GRU trained on text; beside a random and a trained Transformer without "
        "positions.",
        (
            core("untrained", "at least", CARRIED, "the R² of the probe of untrained GRUs"),
            limit("trained", "at least", CARRIED, "the R² of the probe of a trained GRU"),
        ),
        exact=measure_untrained,
        trained=measure_trained,
        needs=(NOPE,),
    ),
)
