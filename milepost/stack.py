"""Stack: what each layer of a model does with positions, as a pattern that repeats.

    layers(3 * rope(head_dim=64) in window(4096), temperature(length=8192))

says: three layers of RoPE whose queries see 4096 tokens, then one without a rotation that sees all and is sharpened by
position; and so on from the start, however many layers there are. Llama 4, SmolLM3, Cohere 2, Gemma 3 and Mistral Large
4 are such patterns.

A stack is an encoding for texts alone: `build` reads it and `repr` prints it. Attention has one layer, so a stack gives
its layers (`layer(n)`: an encoding of its own parameters, and a window or None) and refuses to be used as one.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, NoReturn

from torch import Tensor, nn

from milepost.encoding import Encoding, Sum
from milepost.hooks import HOOKS

MOST = 1024
"""Layers that a pattern may have."""


class Group(NamedTuple):
    """``layers`` neighbours that do the same; their queries see ``window`` tokens, themselves among them."""

    layers: int
    encoding: Encoding
    window: int | None = None


class Stack(Encoding):
    """A pattern of groups. Layer n does what layer n modulo ``period`` does."""

    def __init__(self, *groups: Group):
        super().__init__()
        for layers, enc, window in groups:
            if isinstance(enc, Stack):
                raise ValueError("a pattern of layers has no pattern inside: write its layers out")
            if type(layers) is not int or layers < 1:
                raise ValueError(f"how many layers do the same is a whole number of at least 1, got {layers!r}")
            if window is not None and (type(window) is not int or window < 1):
                raise ValueError(f"a window is a whole number of tokens, at least 1, got {window!r}")
        self.period = sum(group.layers for group in groups)
        if not 1 <= self.period <= MOST:
            raise ValueError(f"a pattern has from 1 to {MOST} layers, got {self.period}")
        self.parts = nn.ModuleList([enc for _, enc, _ in groups])
        self.counts, self.windows = tuple(g.layers for g in groups), tuple(g.window for g in groups)
        encodings = [enc for _, enc, _ in groups]
        self.axes, self.flat = max(e.axes for e in encodings), all(e.flat or e.axes == 1 for e in encodings)
        self.end = min((e.end for e in encodings if e.end is not None), default=None)
        self.causal_only = any(e.causal_only for e in encodings)
        self.shift_invariant = all(e.shift_invariant for e in encodings)
        self._points = HOOKS

    def layer(self, number: int) -> tuple[Encoding, int | None]:
        """The encoding of a layer, with parameters of its own, and its window (None: it sees all)."""
        place = number % self.period
        for count, part, window in zip(self.counts, self.parts, self.windows, strict=True):
            if place < count:
                return copy.deepcopy(part), window  # type: ignore[return-value]
            place -= count
        raise AssertionError("a place below the period is in one of the groups")

    def __repr__(self) -> str:
        groups = []
        for count, part, window in zip(self.counts, self.parts, self.windows, strict=True):
            text = f"({part!r})" if count > 1 and isinstance(part, Sum) else repr(part)
            text = f"{count} * {text}" if count > 1 else text
            groups.append(f"{text} in window({window})" if window is not None else text)
        return f"layers({', '.join(groups)})"

    def __add__(self, other: Encoding) -> NoReturn:
        raise ValueError(f"{self!r} has layers, so add the other encoding inside of them: layers(rope + alibi, ...)")

    def _refuse(self, *given: object) -> NoReturn:
        raise ValueError(f"{self!r} differs from layer to layer: give each layer its own, stack.layer(n)")

    def embed(self, x: Tensor, pos: Tensor) -> NoReturn:
        self._refuse()

    def query(self, q: Tensor, pos: Tensor) -> NoReturn:
        self._refuse()

    def key(self, k: Tensor, pos: Tensor) -> NoReturn:
        self._refuse()

    bias = rescore = output = at = rekey = check = _refuse  # type: ignore[assignment]


def layer_of(enc: Encoding, number: int) -> tuple[Encoding, int | None]:
    """What an encoding is in one layer of a model, and its window: itself and none, unless it is a stack."""
    return enc.layer(number) if isinstance(enc, Stack) else (enc, None)


def different(enc: Encoding) -> list[Encoding]:
    """The encodings that a stack is made of, each once; of any other, itself."""
    parts = enc.parts if isinstance(enc, Stack) else [enc]
    return list({repr(part): part for part in parts}.values())  # type: ignore[arg-type]
