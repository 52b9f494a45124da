"""Tiny models for the tests of migrate: random ones of each family, and one that has learned to look three tokens
back by its table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_models import build
from torch.nn import functional as F

from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape

OLD = 32
VOCABULARY = 24
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_head": 4, "n_positions": OLD},
    "opt": {"hidden_size": 32, "word_embed_proj_dim": 32, "max_position_embeddings": OLD},
    "llama": {"hidden_size": 32, "max_position_embeddings": OLD},
    "qwen2": {"hidden_size": 32, "max_position_embeddings": OLD},
}


def family(name: str, folder: Path, **more: Any) -> Path:
    """A random model of a family: transformers' own, or the lab's ``learned`` and ``sinusoidal``, with weights so
    large that positions matter.
    """
    if name in SIZES:
        model = build(name, **{**SIZES[name], **more})
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():  # biases and norms begin as nothing: drawn, so that a lost one is seen
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))
        model.save_pretrained(folder)
        return folder
    made = Decoder(Shape(64, 2, 32, 4, OLD), name).start(0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=draw)
            ) if parameter.ndim == 1 else parameter.mul_(10)
    return checkpoint.save(made, folder)


def three_back(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Tokens each of which is most often the one three before it: nothing that can be said without positions."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, VOCABULARY, count)
    for n in range(3, count):
        if rng.random() < 0.9:
            ids[n] = ids[n - 3]
    return ids


def taught(folder: Path, spec: str = "learned") -> Path:
    """A lab model that was trained to look three back, by windows of ``OLD`` tokens."""
    torch.set_num_threads(1)
    model = Decoder(Shape(VOCABULARY, 2, 32, 2, OLD), spec).start(1).train()
    text = torch.from_numpy(three_back(40000, 7))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.0)
    draw = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, (STEPS - step) / (STEPS / 3))
        at = torch.randint(len(text) - OLD - 1, (32, 1), generator=draw) + torch.arange(OLD + 1)
        loss = F.cross_entropy(model(text[at[:, :-1]]).flatten(0, 1), text[at[:, 1:]].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return checkpoint.save(model.eval(), folder, steps=STEPS)


STEPS = 300
