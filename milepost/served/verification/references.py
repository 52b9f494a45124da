"""References: what a candidate loses at chosen positions, run here on the weights that the server should have.

    References(load("path/to/model")).losses(rotation, windows, positions)     # n k, nats

A server answers in a second where this process reads for a minute, and the same weights are verified again after every
upgrade of a server. So what was computed is kept, a small file for each window: its name is a digest of the weights,
the rotation, the tokens and the positions, and it holds numbers alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.checkpoints.files import kept
from milepost.checkpoints.model.loaded import Loaded
from milepost.measure.intervals import Numbers
from milepost.served.verification.candidates import Rotation

COMPUTING = 1
"""Raised when what is computed changes."""


class References:
    """Losses of candidates on the weights of a checkpoint. ``read`` counts the tokens that were really read here."""

    def __init__(self, subject: Loaded):
        self.subject, self.read = subject, 0

    def losses(
        self, rotation: Rotation, windows: Numbers, positions: Sequence[Sequence[int]], kind: str = ""
    ) -> Numbers:  # fmt: skip
        """Losses (n k) at the positions of each window; ``kind`` names what else was done to the model."""
        rows = [
            self._of(rotation, np.ascontiguousarray(row[: at[-1] + 1], dtype=np.int64), list(at), kind)
            for row, at in zip(windows, positions, strict=True)
        ]
        return np.array(rows, dtype=np.float64)

    def _of(self, rotation: Rotation, ids: Numbers, at: list[int], kind: str) -> list[float]:
        about = json.dumps([COMPUTING, torch.__version__, self._weights, rotation.about, at, kind])
        name = hashlib.sha256(about.encode() + ids.tobytes()).hexdigest()[:40]
        file = kept.folder("references") / f"{name}.json"
        known = kept.read(file)
        if _are_losses(known, len(at)):
            return list(known)
        with self.subject.turned(rotation.encodings):
            made = self.subject.chosen_losses(torch.from_numpy(ids[None]).to(self.subject.device), at)[0]
        self.read += len(ids)
        losses: list[float] = made.double().cpu().tolist()
        if np.isfinite(losses).all():
            kept.write(file, losses)
        return losses

    @cached_property
    def _weights(self) -> str:
        """A digest of every number of the model, and of how it is made of them."""
        digest = hashlib.blake2b(digest_size=20)
        model: Any = self.subject.model
        digest.update(f"{type(model).__name__} {getattr(model, 'config', '')}".encode())
        for name, value in model.state_dict().items():
            digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            digest.update(_bytes_of(value))
        return digest.hexdigest()


def _bytes_of(value: Tensor) -> Any:
    plain = value.detach().cpu().contiguous()
    return plain.view(torch.uint8).numpy() if plain.dim() else str(plain.item()).encode()


def _are_losses(known: Any, count: int) -> bool:
    return isinstance(known, list) and len(known) == count and all(isinstance(number, float) for number in known)
