"""How a rotation of transformers turns: its rotary module gives cos and sin, its modelling file applies them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def hf_turn(rotary: Any, apply: Callable[..., Any] | None = None, args: tuple[Any, ...] = ()) -> Any:
    """The function that turns rows by a rotary module; ``args`` are what it is called with besides positions."""
    modelling = sys.modules[type(rotary).__module__]
    apply = apply or getattr(modelling, "apply_rotary_pos_emb", None)

    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))[None, :, None, :]  # batch, heads, tokens, channels
        last = position if length is None else max(length - 1, position)
        positions = torch.tensor([[position, last]])
        with torch.no_grad():
            try:
                made = rotary(rows, positions, *args)
            except IndexError:  # positions on three axes, which are alike in a text
                made = rotary(rows, positions.expand(3, 1, 2), *args)
            if isinstance(made, tuple):
                cos, sin = (part[..., :1, :] for part in made)
                turned = apply(rows, rows, cos, sin)[0]
            else:  # complex numbers, DeepSeek's and Llama 4's
                made = made[:, :1]
                turned = _apply_complex(modelling, rows, made)
        return turned[0, :, 0].numpy()

    return turn


def _apply_complex(modelling: Any, rows: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    flat = rows.transpose(1, 2)  # Llama 4 has tokens before heads
    if "llama4" in modelling.__name__:
        return modelling.apply_rotary_emb(flat, flat, made)[0].transpose(1, 2)
    return modelling.apply_rotary_emb(rows, rows, made)[0]
