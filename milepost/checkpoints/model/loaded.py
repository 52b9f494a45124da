"""A checkpoint in memory, whatever it came from: it reads text, and is asked for its losses and its attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.checkpoints.inspection.inspect import Inspection
from milepost.checkpoints.model.tokenizers import Tokenized
from milepost.encoding import Encoding
from milepost.rope import RopeSpec

Numbers = np.ndarray[Any, Any]
CHUNK = 512
"""Tokens whose logits are held at a time."""


class Look(NamedTuple):
    """One layer's queries (B H L D) and keys (B G L D) as they meet.

    ``enc`` is what its logits get besides, ``window`` how far it may look, ``features`` what ``enc`` makes of the
    hidden states (B L N), where it asks for any.
    """

    layer: int
    q: Tensor
    k: Tensor
    enc: Encoding
    scale: float
    window: int | None
    features: Tensor | None = None


class Loaded(Tokenized, ABC):
    """A causal language model in memory.

    ``trained`` is the trained length, ``served`` what its config promises, ``end`` the most tokens that can be read at
    all (a table's rows). ``shifts`` is whether a text can be put at other positions. ``begin`` is the token that a text
    begins with; `read_text` finds out whether the model wants one.
    """

    form: str
    family: str
    inspection: Inspection
    spec: RopeSpec | None
    model: nn.Module
    begin: int | None = None
    shifts: bool
    length_dependent: bool

    def to_json(self) -> dict[str, Any]:
        """What it is, as plain data; with what `inspect` found."""
        names = ("name", "form", "family", "trained", "served", "end", "vocabulary", "shifts", "length_dependent")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "device": str(self.device), "inspection": self.inspection.to_json()}

    def _repr_html_(self) -> str:
        return self.inspection._repr_html_()

    @property
    def trained(self) -> int | None:
        return self.inspection.trained.tokens

    @property
    def served(self) -> int | None:
        lengths = [n for n in (self.inspection.scaled.tokens, self.inspection.served.tokens, self.trained) if n]
        return max(lengths, default=None)

    @property
    def end(self) -> int | None:
        return min((table.usable for table in self.inspection.tables), default=None)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @abstractmethod
    def __call__(self, ids: Tensor) -> Tensor:
        """Logits (B L V) of tokens (B L)."""

    @abstractmethod
    def losses(self, ids: Tensor, first: int = 0) -> Tensor:
        """Nats of each next token (B L) of tokens (B L + 1), the first of which is at position ``first``."""

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        """The last ``count`` of the `losses` (B count): logits are made for these alone."""
        return self.losses(ids)[:, -count:]

    def chosen_losses(self, ids: Tensor, at: Sequence[int]) -> Tensor:
        """The `losses` (B k) of the tokens at positions ``at``, from 1 on: logits are made for these alone."""
        return self.losses(ids)[:, [p - 1 for p in at]]

    @abstractmethod
    def last(self, ids: Tensor) -> Tensor:
        """Logits (B V) after the last of the tokens (B L)."""

    @abstractmethod
    def looks(self, ids: Tensor) -> Iterator[Look]:
        """Every layer's queries and keys. ValueError where a family's attention can't be watched."""

    @abstractmethod
    def continued(self, ids: Tensor, said: int) -> Tensor:
        """Logits (B said V) after each of the last ``said`` tokens; these are read one by one, through a cache."""

    @abstractmethod
    def turned(self, encodings: Mapping[int, Encoding]) -> AbstractContextManager[None]:
        """Within it, these layers turn (and score) as these encodings say, in place of the model's own rotation."""

    @abstractmethod
    def prove(self, own: Mapping[int, Encoding]) -> None:
        """ConfigError where the model, turned by its own ropes, is not itself."""


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Nats of each target (B L) under its logits (B L V), in float32."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none").view(len(targets), -1)
