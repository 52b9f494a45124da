"""Figures about order: what attention without positions notices of it, and what a recurrent network does.

Random weights, no training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from milepost import Encoding, Layout, RoPE, attend
from milepost.draw.figure import Figure

WIDTH, HEADS = 64, 4


def _numbers(count: int, first: int = 0) -> list[float]:
    return [float(n) for n in range(first, first + count)]


def recurrent() -> list[Figure]:
    """Exchange two neighbours so far back: does the last state notice? And can the position be read off a state?"""
    length, texts = 64, 256
    made = torch.Generator().manual_seed(0)
    words = torch.randn(32, WIDTH, generator=made, dtype=torch.float64)
    tokens = words[torch.randint(0, 32, (texts, length), generator=made)]
    torch.manual_seed(0)
    gru = torch.nn.GRU(WIDTH, WIDTH, batch_first=True, dtype=torch.float64)
    readers = {
        "GRU": lambda x: gru(x)[0],
        "attention without position, 1 layer": lambda x: _stack(x, None, 1),
        "attention without position, 3 layers": lambda x: _stack(x, None, 3),
    }
    noticed, read = {}, {"the position": _numbers(length)}
    with torch.no_grad():
        for name, reader in readers.items():
            states = reader(tokens)
            noticed[name] = [_noticed(reader, tokens[:16], states[:16, -1], back) for back in range(1, 33)]
            line, share = straight(states)
            read[f"{name}, R2 = {share:.2f}"] = line.tolist()
    return [
        Figure(
            "lines",
            "Two neighbours exchanged: the last state changes by",
            "tokens back",
            "change / size",
            _numbers(32, 1),
            lines=noticed,
        ),
        Figure(
            "lines",
            "The position, as a straight line reads it off a state",
            "position",
            "read off",
            _numbers(length),
            lines=read,
        ),
    ]


def _noticed(reader: Callable[[Tensor], Tensor], tokens: Tensor, before: Tensor, back: int) -> float:
    order = list(range(tokens.shape[1]))
    a = tokens.shape[1] - 1 - back
    order[a], order[a - 1] = order[a - 1], order[a]
    return float((reader(tokens[:, order])[:, -1] - before).norm() / before.norm())


def straight(states: Tensor) -> tuple[Tensor, float]:
    """Least squares from states (B L C) to positions, fitted on three quarters of the texts: what it reads off the
    others (L), and its R2 there."""
    texts, length = states.shape[:2]
    wide, part = torch.cat((states, torch.ones_like(states[..., :1])), -1), texts * 3 // 4
    place = torch.arange(length, dtype=states.dtype)
    found = torch.linalg.lstsq(wide[:part].flatten(0, 1), place.repeat(part)[:, None]).solution
    guess = (wide[part:] @ found)[..., 0]
    return guess.mean(0), float(1 - (guess - place).square().mean() / (place - place.mean()).square().mean())


def _stack(x: Tensor, enc: Encoding | None, layers: int, causal: bool = True) -> Tensor:
    """Random layers of attention and a small network on x (B L C), the same numbers for every encoding."""
    made = torch.Generator().manual_seed(1)
    size = x.shape[-1]
    at = Layout.dense(x.shape[1])
    enc = enc or Encoding()

    def weight() -> Tensor:
        return torch.randn(size, size, generator=made, dtype=torch.float64) * 1.5 / size**0.5

    for _ in range(layers):
        normed = torch.nn.functional.layer_norm(x, (size,))
        q, k, v = ((normed @ weight()).unflatten(-1, (HEADS, -1)).transpose(1, 2) for _ in range(3))
        y = attend(q, k, v, enc, at=at, causal=causal, backend="reference")
        x = x + y.transpose(1, 2).flatten(2) @ weight()
        x = x + torch.tanh(torch.nn.functional.layer_norm(x, (size,)) @ weight()) @ weight()
    return x


def shuffled() -> list[Figure]:
    """How far the last token's state moves when the tokens before it are shuffled, as a share of its size."""
    made = torch.Generator().manual_seed(0)
    x = torch.randn(8, 32, WIDTH, generator=made, dtype=torch.float64)
    other = torch.cat((x[:, torch.randperm(31, generator=made)], x[:, 31:]), 1)
    cases = {
        "no position, no mask": (None, False),
        "no position, causal mask": (None, True),
        "rope, causal mask": (RoPE(head_dim=WIDTH // HEADS), True),
    }
    lines = {}
    for name, (enc, causal) in cases.items():
        moved = []
        for layers in range(1, 7):
            a, b = (_stack(one, enc, layers, causal)[:, -1] for one in (x, other))
            moved.append(float((a - b).norm() / a.norm()))
        lines[name] = [0.0 if m < 1e-12 else m for m in moved]  # rounding of float64
    return [
        Figure(
            "lines",
            "The last token, when the others are shuffled",
            "layers",
            "change / size",
            _numbers(6, 1),
            lines=lines,
        )
    ]


FIGURES = {"recurrent": recurrent, "shuffled": shuffled}
