"""Views: an image at another size, cut into patches; and moved a little, for training.

    cut     (B C H W)  ->  (B rows·columns C·p·p), row by row: token r·columns + c is the patch at row r, column c
    sized   bilinear, pixel middles aligned, antialiased where the image shrinks
    moved   zoomed by 0.8 to 1.25 and shifted by up to an eighth of each side, another view for each image of each step

All models of a seed see the very same views in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Numbers = np.ndarray[Any, Any]
ZOOM = 1.25
SHIFT = 0.125


def sized(images: Numbers, size: tuple[int, int]) -> Tensor:
    """Images (N C H W) at another height and width."""
    given = torch.from_numpy(images)
    if tuple(given.shape[2:]) == size:
        return given
    return F.interpolate(given, size=size, mode="bilinear", align_corners=False, antialias=True)


def cut(images: Tensor, patch: int) -> Tensor:
    """Patches of ``patch`` x ``patch`` pixels as tokens: (B, rows x columns, C x patch x patch)."""
    batch, channels, height, width = images.shape
    if height % patch or width % patch:
        raise ValueError(f"an image of {height} x {width} pixels can't be cut into patches of {patch} x {patch}")
    apart = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return apart.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


def moved(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Each image (B C H W) zoomed and shifted by chance; what comes in from outside is black."""
    count = len(images)
    zoom = np.exp(rng.uniform(-np.log(ZOOM), np.log(ZOOM), count))
    shift = rng.uniform(-2 * SHIFT, 2 * SHIFT, (count, 2))  # an image goes from -1 to 1
    view = np.zeros((count, 2, 3), dtype=np.float32)
    view[:, 0, 0] = view[:, 1, 1] = 1 / zoom
    view[:, :, 2] = shift
    places = F.affine_grid(torch.from_numpy(view), list(images.shape), align_corners=False)
    return F.grid_sample(images, places, mode="bilinear", padding_mode="zeros", align_corners=False)
