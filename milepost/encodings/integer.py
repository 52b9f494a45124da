"""Integer: the position itself, added to every channel.

    x_p -> x_p + p              raw
    x_p -> x_p + p / over       normalised by a fixed number, or by the text's own length (over="length")

Fleetwood, "You could have designed state of the art positional encoding", 2024, section "Integer Position Encoding"

The first idea that everybody has: raw, the number swamps an embedding of size 1 after a few tokens;
normalised by the length, the same step of one token means something else in every text. Kept to be measured.

Departure: "normalised by the length" is a function of the length, and says so: `at(length)` gives the plain encoding.

Mechanism: adds one number to the embedding
Information: absolute
Prior: none; magnitude grows with position
Content: added to it, and swamps it
Storage: none
Used by: nobody for text; a step of the story
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from milepost.encoding import Encoding


class Integer(Encoding):
    """``x + p / over``; ``over`` is None (raw), a number, or "length"."""

    shift_invariant = False

    def __init__(self, over: float | Literal["length"] | None = None):
        super().__init__()
        if over is not None and over != "length" and not (isinstance(over, int | float) and 0 < over < float("inf")):
            raise ValueError(f'over must be None (raw), a finite number above 0, or "length", got {over!r}')
        self.over = over
        self.length_dependent = over == "length"

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        if self.over == "length":
            raise ValueError(f"{self!r} depends on the length of the text: use enc.at(length), once a text")
        return (x.double() + (pos.double() / (self.over or 1))[..., None]).to(x.dtype)

    def at(self, length: int) -> Encoding:
        return Integer(over=length) if self.over == "length" else self
