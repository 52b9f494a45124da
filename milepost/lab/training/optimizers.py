"""Optimizers: Muon for the matrices of the layers, AdamW for everything else.

    Muon    q, k, v, out and the feed-forward part: each step is a matrix whose singular values are all alike
            (Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024; torch.optim.Muon)
    AdamW   embeddings, head, norms, and everything of the encoding: the tables of T5 and Shaw are matrices, too,
            but their rows are distances, and no map from channels to channels

Matrices of one shape, lying or standing, go through Muon's iteration together: `Batched` is torch.optim.Muon but for
that, to the rounding of its products.

The rates were chosen by the loss at the trained length alone. AdamW decays nothing, so that no encoding's table is held
back; all rates follow one schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

MUON_RATE = 0.02
ADAMW_RATE = 3e-3
STEPS = 5
"""Of Muon's iteration."""
LAYERS = ("qkv.weight", "out.weight", "up.weight", "down.weight")
"""Ends of the names of what Muon trains, inside of ``blocks`` and outside of their encodings."""


class Batched(Muon):
    """``torch.optim.Muon`` whose matrices of one shape are one product, not many small ones."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            momentum, shapes = group["momentum"], dict[tuple[int, ...], list[Tensor]]()
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(tuple(sorted(parameter.shape)), []).append(parameter)
                    self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
            for matrices in shapes.values():
                grads = [parameter.grad for parameter in matrices if parameter.grad is not None]
                held = [self.state[parameter]["momentum_buffer"] for parameter in matrices]
                torch._foreach_lerp_(held, grads, 1 - momentum)
                moves = [_lying(move).bfloat16() for move in torch._foreach_lerp(grads, held, momentum)]
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                for parameter, update in zip(matrices, alike(torch.stack(moves)), strict=True):
                    rows, columns = parameter.shape
                    rate = group["lr"] * max(1, rows / columns) ** 0.5
                    parameter.add_(update.T if rows > columns else update, alpha=-rate)


def _lying(matrix: Tensor) -> Tensor:
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix


def alike(x: Tensor) -> Tensor:
    """Lying matrices (N R C) of bfloat16, their singular values made about 1: five steps of Newton and Schulz."""
    a, b, c = 3.4445, -4.775, 2.0315
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Optimizers:
    """Both optimizers of a model, which step together."""

    def __init__(self, model: nn.Module):
        matrices, others = split(model)
        self.both: list[tuple[Optimizer, float]] = []
        if matrices:
            self.both.append((Batched(matrices, lr=MUON_RATE, momentum=0.95, weight_decay=0.01), MUON_RATE))
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
