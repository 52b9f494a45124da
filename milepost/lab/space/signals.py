"""Signals: generated inputs of three and four axes, in which order along every axis decides the label.

    video   frames x rows x columns                            a bright flash and a dark one, in noise;
                                                               a token is a patch of 3 x 3 pixels
    eeg     windows x bands x rows x columns of electrodes     a rising burst and a falling one, in noise;
                                                               a token is a stretch of 12 samples

    bit a of the label:   1 where the first mark stands before the second on axis a

The two marks never stand level on any axis. To mirror a signal along axis a turns bit a and no other, and shuffled
tokens say nothing of any bit: who knows the label knows the order along every axis. Sides are unequal, so that
swapped axes show.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
STRENGTH = 2.5
"""The root mean square of a mark, where that of noise is 1."""


@dataclass(frozen=True)
class Signals:
    """A kind of signal: the names of its axes, and how many places each has."""

    kind: str
    axes: tuple[str, ...]
    sides: tuple[int, ...]

    @property
    def marks(self) -> Numbers:
        """What the two marks look like: 2 x channels."""
        if self.kind == "video":
            across = np.exp(-0.5 * np.arange(-1, 2) ** 2)
            bright = np.outer(across, across).ravel()
            both = np.stack([bright, -bright])
        else:
            along = np.linspace(0, 1, 12)
            rising = np.sin(2 * np.pi * (along + 1.5 * along**2))
            both = np.stack([rising, rising[::-1]])
        return np.asarray(both / np.sqrt((both**2).mean(1, keepdims=True)) * STRENGTH)

    @property
    def channels(self) -> int:
        """Numbers of a token."""
        return int(self.marks.shape[1])

    @property
    def classes(self) -> int:
        """Two for each axis."""
        return int(2 ** len(self.axes))

    @property
    def digest(self) -> str:
        """A name for what is made: of its first signals."""
        return hashlib.sha256(b"".join(part.tobytes() for part in self.make(8, (0,)))).hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a result says about it."""
        return {
            "kind": self.kind,
            "axes": list(self.axes),
            "sides": list(self.sides),
            "channels": self.channels,
            "sha256": self.digest,
        }

    def make(self, count: int, seed: tuple[int, ...]) -> tuple[Numbers, Numbers]:
        """Signals (count, tokens, channels) of a seed, and their labels."""
        rng = np.random.default_rng(seed)
        noisy = rng.standard_normal((count, *self.sides, self.channels)).astype(np.float32)
        places = np.stack([_apart(rng, count, side) for side in self.sides], axis=-1)  # count, mark, axis
        for mark, look in enumerate(self.marks.astype(np.float32)):
            noisy[(np.arange(count), *places[:, mark].T)] += look
        first = places[:, 0] < places[:, 1]
        labels = (first << np.arange(len(self.axes))).sum(1)
        return noisy.reshape(count, math.prod(self.sides), -1), labels.astype(np.int64)

    def mirrored(self, signals: Numbers, axis: int) -> Numbers:
        """The same signals with one axis the other way round."""
        whole = signals.reshape(len(signals), *self.sides, -1)
        return np.ascontiguousarray(np.flip(whole, axis + 1)).reshape(signals.shape)

    def bits(self, labels: Numbers) -> Numbers:
        """Labels axis by axis: count x axes of 0 and 1."""
        return np.asarray(labels[:, None] >> np.arange(len(self.axes)) & 1)


KINDS = {
    "video": Signals("video", ("frame", "row", "column"), (4, 3, 5)),
    "eeg": Signals("eeg", ("window", "band", "electrode row", "electrode column"), (4, 3, 2, 3)),
}


def _apart(rng: np.random.Generator, count: int, side: int) -> Numbers:
    """Two different places on an axis, count x 2."""
    first = rng.integers(0, side, count)
    second = (first + rng.integers(1, side, count)) % side
    return np.stack([first, second], axis=1)
