"""Tables of positions made by hand: rows that no text ever reached, and rows that were trained."""

import math

import torch

NEAR = 2
"""Rows by which the answer may be off: see test_trained_rows."""
ROWS = 512


def noise(rows, width, std=0.02, seed=0):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * std


def walk(rows, width, std=0.1, step=0.2, seed=1):
    """Rows that go on from each other: a random walk drawn back to 0, whose neighbours' cosine is near 1 - step."""
    fresh = noise(rows, width, std, seed)
    made = [fresh[0]]
    for row in fresh[1:]:
        made.append((1 - step) * made[-1] + math.sqrt(1 - (1 - step) ** 2) * row)
    return torch.stack(made)


def planted(trained, width, **how):
    return torch.cat([walk(trained, width, **how), noise(ROWS - trained, width)]) if trained else noise(ROWS, width)
