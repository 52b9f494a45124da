"""Probes: can a token's place be read off a state?

R² = 1 - (error of the probe)² / (spread of the places)²,      on texts that the probe was not fitted to

A probe is a linear map of the state and of its squares: a state that grows with the place in whatever direction tells it by its size, which a map of
the state alone can't see.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from milepost.claims.claim import Claim, Found, points
from milepost.claims.needs import Need
from milepost.claims.rule import Number, core, limit
from milepost.claims.seeds import both
from milepost.claims.small import fit, kept
from milepost.claims.trained import Lab
from milepost.claims.world import WIDTH, Stack, drawn
from milepost.lab.corpus import batch
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.lab.train import Recipe
from milepost.measure.intervals import mean

NOPE = Need("text", ("nope",), weights=True)
PLACES, TEXTS = 64, 512
CARRIED = 0.5
"""The R² from which on a place counts as carried."""
STARTS, FIRST = (1, 2, 3, 4, 5), 8
STEPS = {"quick": 300, "standard": 600}


def probed(states: Tensor, ridge: float = 1e-3) -> Number:
    """R² of a probe for the place of each state (texts L C): fitted on every other text, tried on the rest."""
    x = states.double()
    x = torch.cat([x, x**2, torch.ones_like(x[..., :1])], -1)
    places = torch.arange(x.shape[1], dtype=torch.float64).expand(x.shape[:2])
    fit_x, fit_y = x[::2].flatten(0, 1), places[::2].flatten()
    size = fit_x.T @ fit_x
    weights = torch.linalg.solve(
        size + ridge * size.diagonal().mean() * torch.eye(len(size), dtype=torch.float64), fit_x.T @ fit_y
    )
    error = ((x[1::2] @ weights - places[1::2]) ** 2).mean(1).numpy()  # one for each text
    spread = float(places[0].var(unbiased=False))
    one = mean((1 - error / spread)[:, None], np.arange(len(error)))
    return Number(one.value, one.low, one.high, f"{len(error)} texts")


class Recurrent(nn.Module):
    """A language model of one GRU; ``states`` are its hidden states."""

    def __init__(self, width: int = 96):
        super().__init__()
        self.tokens, self.cell, self.head = (
            nn.Embedding(256, width),
            nn.GRU(width, width, batch_first=True),
            nn.Linear(width, 256),
        )

    def states(self, ids: Tensor) -> Tensor:
        """B L C."""
        found: Tensor = self.cell(self.tokens(ids))[0]
        return found

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.states(ids))
        return logits


def untrained_found() -> Found:
    """Random GRUs and random causal Transformers without positions, on random words."""
    x = drawn(TEXTS, PLACES, WIDTH, seed=2)
    cells, stacks = [], []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for start in STARTS:
            torch.manual_seed(start)
            cells.append(nn.GRU(WIDTH, WIDTH, batch_first=True).double()(x)[0])
            stacks.append(Stack(2, seed=start)(x, causal=True))
    found = {
        "GRU": _over_seeds([probed(one) for one in cells]),
        "Transformer, 2 layers": _over_seeds([probed(one) for one in stacks]),
        "words": probed(x),
    }
    near = _over_seeds([probed(one[:, :FIRST]) for one in cells])
    beside = found["Transformer, 2 layers"].value
    note = f"of the first {FIRST} places alone a probe of untrained GRUs has R² {near.value:.2g}, and of {PLACES} one of untrained Transformers {beside:.2g}"
    return Found(
        {"untrained": found["GRU"]},
        (points(f"R² of a probe for the place, {PLACES} places, untrained", "R²", found, CARRIED),),
        (note,),
    )


def trained_found(lab: Lab) -> Found:
    """A GRU trained on the lab's text, and the lab's models without positions."""
    plan = lab.plans["text"]
    text = plan.read()
    ids = torch.from_numpy(Texts.of(plan, text).windows[:, :PLACES])
    found, models = [], lab.models(NOPE, "nope")
    for seed in lab.seeds:

        def one(seed: int = seed) -> Number:
            torch.manual_seed(seed)
            model = Recurrent()
            recipe = Recipe(STEPS[lab.profile], 32, PLACES, seed=seed)

            def read(step: int) -> tuple[Tensor, Tensor]:
                rows = torch.from_numpy(batch(text.train, PLACES, recipe.rows, seed, step))
                return rows[:, :-1], rows[:, 1:]

            fit(model, read, recipe)
            with torch.no_grad():
                return probed(model.states(ids))

        found.append(kept(lab.home("gru"), f"seed-{seed}", one))
    values = {"GRU, trained": _over_seeds(found), "nope, trained": _nope(models, ids)}
    return Found(
        {"trained": values["GRU, trained"]}, (points("R² of a probe for the place, trained", "R²", values, CARRIED),)
    )


def _nope(models: list[Decoder], ids: Tensor) -> Number:
    """R² of a probe of the last layer's states of models without positions."""
    each = []
    for model in models:
        held: list[Tensor] = []
        hook = model.norm.register_forward_hook(lambda module, given, out, held=held: held.append(given[0]))
        with torch.no_grad():
            model(ids)
        hook.remove()
        each.append(probed(held[0]))
    return _over_seeds(each)


def _over_seeds(each: list[Number]) -> Number:
    """The mean, with the widest of the seeds' intervals over texts."""
    return both(
        [one.value for one in each], min(one.sides[0] for one in each), max(one.sides[1] for one in each), each[0].over
    )


def nope_found(lab: Lab) -> Found:
    """The place of tokens, read off trained models without positions."""
    plan = lab.plans["text"]
    ids = torch.from_numpy(Texts.of(plan, plan.read()).windows[:, : plan.shape.length])
    number = _nope(lab.models(NOPE, "nope"), ids)
    return Found(
        {"probe": number},
        (points("R² of a probe for the place, trained without positions", "R²", {"nope": number}, CARRIED),),
    )


CLAIMS = (
    Claim(
        "rnn",
        "A recurrent network carries position in its state for nothing.",
        "循环网络的状态天然携带位置信息。",
        "000 §2B",
        f"A probe, linear in a state and in its squares, reads the place, of {PLACES}, off the states of random GRUs on random words, and of a GRU trained on "
        "text; beside a random and a trained Transformer without positions.",
        (
            core("untrained", "at least", CARRIED, "the R² of the probe of untrained GRUs"),
            limit("trained", "at least", CARRIED, "the R² of the probe of a trained GRU"),
        ),
        exact=untrained_found,
        trained=trained_found,
        needs=(NOPE,),
    ),
)
