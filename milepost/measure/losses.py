"""Losses: the loss of each token, under three protocols that are often mistaken for each other.

    same targets    the same last tokens, read with more and more context before them: does a longer context help?
    disjoint        windows that do not overlap; the first tokens of each have hardly any context
    sliding         windows that overlap; each scores only what the one before did not, with at least length - stride
                    tokens of context

Losses are in nats a token. Each token is scored once under each protocol. Everything runs where the model is, unless
``device`` says otherwise. A model that has a method ``losses`` is asked for these alone: logits of a long text over a
large vocabulary need not be held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.measure.intervals import Numbers, mean

Model = Callable[[Tensor], Tensor]
Device = torch.device | str | None
AT_ONCE = 1 << 13
"""Tokens in one call of the model."""
TOLERATED_RISE = 0.02
"""The rise of the loss, as a share of it, up to which a model counts as still reading what it reads."""


@runtime_checkable
class Scoring(Protocol):
    """A model that scores by itself: tokens (B L + 1) to the loss of each next one (B L)."""

    def losses(self, ids: Tensor) -> Tensor:
        """Nats of each next token."""
        ...


@runtime_checkable
class ScoringEnds(Protocol):
    """A model that scores the ends of texts alone: tokens (B L + 1) to the loss of the last ``count`` (B count)."""

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        """Nats of the last tokens."""
        ...


@torch.no_grad()
def token_losses(model: Model, windows: Numbers, device: Device = None, *, last: int | None = None) -> Numbers:
    """Losses (windows x length) of windows of tokens (windows x length + 1): each token predicts the next.

    With ``last``, the losses of the last so many tokens alone.
    """

    def score(ids: Tensor) -> Tensor:
        if last is not None and isinstance(model, ScoringEnds):
            return model.last_losses(ids, last)
        if isinstance(model, Scoring):
            return model.losses(ids)
        logits = model(ids[:, :-1]).float().flatten(0, 1)
        return F.cross_entropy(logits, ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)

    losses = in_batches(score, windows, device_of(model) if device is None else device)
    return losses if last is None else losses[:, -last:]


def in_batches(score: Callable[[Tensor], Tensor], windows: Numbers, device: Device) -> Numbers:
    """What ``score`` gives for windows (windows x length + 1), asked for as many of them as a call may hold."""
    rows = max(1, AT_ONCE // windows.shape[1])
    batches = (np.ascontiguousarray(windows[first : first + rows]) for first in range(0, len(windows), rows))
    return np.concatenate([score(torch.from_numpy(ids).to(device)).cpu().numpy().astype(np.float64) for ids in batches])


def device_of(model: object) -> torch.device:
    """Where a model is: the device that it names, or its first parameter's; the CPU for a callable without either."""
    named = getattr(model, "device", None)
    if isinstance(named, torch.device):
        return named
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device


def same_targets(
    model: Model, windows: Numbers, length: int, targets: int, device: Device = None, *, begin: int | None = None
) -> Numbers:
    """Losses (windows x targets) of the last ``targets`` tokens of each window, read with ``length`` tokens in all.

    ``begin`` is put in place of the first token that is read, for models that want every text to begin with it.
    """
    if not 1 <= targets <= length < windows.shape[1]:
        raise ValueError(f"the last {targets} of {length} tokens can't be scored in windows of {windows.shape[1] - 1}")
    return token_losses(model, with_first_token(windows[:, -(length + 1) :], begin), device, last=targets)


def with_first_token(windows: Numbers, begin: int | None) -> Numbers:
    """The windows with ``begin`` in place of their first token, which is never scored; unchanged where it is None."""
    return windows if begin is None else np.concatenate([np.full_like(windows[:, :1], begin), windows[:, 1:]], 1)


def disjoint(model: Model, text: Numbers, length: int, device: Device = None) -> Numbers:
    """Losses (windows x length) of one text in windows that do not overlap.

    A last piece that is shorter is left out.
    """
    count = (len(text) - 1) // length
    if count < 1:
        raise ValueError(f"a text of {len(text)} tokens has no window of {length}")
    cut = np.stack([text[n * length : (n + 1) * length + 1] for n in range(count)])
    return token_losses(model, cut, device)


def sliding(model: Model, text: Numbers, length: int, stride: int, device: Device = None) -> Numbers:
    """Losses (tokens,) of one text in windows of ``length`` that advance by ``stride``.

    A last piece that is shorter than a stride is left out.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"a stride is from 1 to the length {length}, got {stride}")
    ends = list(range(length, len(text), stride))
    if not ends:
        raise ValueError(f"a text of {len(text)} tokens has no window of {length}")
    cut = np.stack([text[end - length : end + 1] for end in ends])
    losses = token_losses(model, cut, device)
    return np.concatenate([losses[0], *(row[-stride:] for row in losses[1:])])


def buckets(length: int, trained: int, pieces: int = 4) -> list[tuple[int, int]]:
    """Stretches of positions up to ``length``: ``pieces`` of them in the trained length, and as long beyond it."""
    size = max(1, trained // pieces)
    return [(a, min(a + size, length)) for a in range(0, length, size)]


def loss_row(losses: Numbers, groups: Numbers) -> dict[str, Any]:
    """The mean loss with its interval as a row of a table; null where a loss is not finite."""
    if not np.isfinite(losses).all():
        empty = dict.fromkeys(("loss", "low", "high", "perplexity"))
        return {**empty, "tokens": 0, "note": "the loss is not a number"}
    over_groups = mean(losses, groups)
    perplexity = math.exp(over_groups.value) if over_groups.value < 700 else None
    return {
        "loss": over_groups.value,
        "low": over_groups.low,
        "high": over_groups.high,
        "perplexity": perplexity,
        "tokens": over_groups.tokens,
    }


def by_position(
    model: Model,
    windows: Numbers,
    edges: Sequence[tuple[int, int]],
    *,
    length_dependent: bool = False,
    device: Device = None,
) -> list[Numbers]:
    """Losses (windows x tokens) at the positions of each bucket.

    They come from one pass over all positions, or, where the length matters, from one pass to the end of each bucket.
    """
    if not length_dependent:
        losses = token_losses(model, windows[:, : edges[-1][1] + 1], device)
        return [losses[:, a:e] for a, e in edges]
    return [token_losses(model, windows[:, : e + 1], device)[:, a:e] for a, e in edges]
