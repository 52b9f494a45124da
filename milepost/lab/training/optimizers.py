"""Optimizers: Muon for the matrices of the layers, AdamW for everything else.

    Muon    q, k, v, out and the feed-forward part: each step is a matrix whose singular values are all alike
            (Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024; torch.optim.Muon)
    AdamW   embeddings, head, norms, and everything of the encoding: the tables of T5 and Shaw are matrices, too,
            but their rows are distances, and no map from channels to channels

The rates were chosen by the loss at the trained length alone. AdamW decays nothing, so that no encoding's table is held
back; all rates follow one schedule.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

MUON_RATE = 0.02
ADAMW_RATE = 3e-3
LAYERS = ("qkv.weight", "out.weight", "up.weight", "down.weight")
"""Ends of the names of what Muon trains, inside of ``blocks`` and outside of their encodings."""


class Optimizers:
    """Both optimizers of a model, which step together."""

    def __init__(self, model: nn.Module):
        matrices, others = split(model)
        self.both: list[tuple[Optimizer, float]] = []
        if matrices:
            self.both.append((Muon(matrices, lr=MUON_RATE, momentum=0.95, weight_decay=0.01), MUON_RATE))
        if others:
            self.both.append(
                (AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True), ADAMW_RATE)
            )

    def step(self, rate: float) -> None:
        """One step at ``rate`` times the full rates; gradients are gone after it."""
        for optimizer, full in self.both:
            for group in optimizer.param_groups:
                group["lr"] = full * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of both, to resume from."""
        return [optimizer.state_dict() for optimizer, _ in self.both]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """The states that `state_dict` gave."""
        for (optimizer, _), state in zip(self.both, states, strict=True):
            optimizer.load_state_dict(state)


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices that Muon trains, and all other parameters."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inner = "blocks." in name and ".enc." not in name and name.endswith(LAYERS)
        (matrices if inner else others).append(parameter)
    return matrices, others
