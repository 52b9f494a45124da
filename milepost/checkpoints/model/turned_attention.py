"""turned: a loaded model of transformers whose layers turn, or score, as milepost's encodings say.

    with turned(model, {0: SelfExtend(rope), 1: SelfExtend(rope), ...}):
        model(ids)                       # the same weights, other positions

The model's own rotary function is made to give q and k back as they came, and its attention is milepost's `attend`. So
any scaling and any position map can be tried on a checkpoint, also those that no config can say, and without an N x N
tensor. No cache and no padding: whole texts.

Is nothing lost on the way? A model turned by its own ropes must give its own logits: `proved` holds it to that, up to
rounding, before anything is measured. Models that do something between turning and attention (a norm, a part of the
head that is put elsewhere) fail it, and are refused. transformers has frequencies in float32, with an error of up to
(16 + ln base) 2^-24 of themselves; ours are exact. What that does to logits is found by moving all positions by as
much, and is allowed besides rounding.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from milepost.attention import attend
from milepost.attention.turning import turns_by_length
from milepost.checkpoints.model.patch import patched
from milepost.checkpoints.model.probe import Case, apart
from milepost.checkpoints.model.watched_attention import extras, implementation, own_attention
from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.layout import Layout
from milepost.rope import ConfigError

NAME = "milepost_turned"
ROTARY = "apply_rotary_pos_emb"
FIXED = "its rotation can't be taken out of it"
PROOF = 272
"""Tokens of the proof: some past 256, where half precision would lose positions."""


@contextlib.contextmanager
def turned(model: Any, encodings: Mapping[int, Encoding]) -> Iterator[None]:
    """Within it, the layers of these numbers have these encodings; layers without one do not turn at all."""
    from transformers import AttentionInterface

    if not any(own_attention(part) for part in model.modules()):
        raise ConfigError(f"{type(model).__name__} does not attend by transformers' interface: {FIXED}")
    AttentionInterface.register(NAME, _attention(encodings))
    with rotary_replaced(model, lambda function: lambda q, k, *_, **__: (q, k)), implementation(model, NAME):
        yield


def rotary_replaced(model: Any, replacement: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """Within it, the rotary function of the model's own code is what ``replacement`` makes of it."""
    names = sorted({type(part).__module__ for part in model.modules()})
    modules = [sys.modules[name] for name in names if hasattr(sys.modules.get(name), ROTARY)]
    if not modules:
        raise ConfigError(f"{type(model).__name__} has no function {ROTARY}: {FIXED}")
    return patched(*((module, ROTARY, replacement(getattr(module, ROTARY))) for module in modules))


def _attention(encodings: Mapping[int, Encoding]) -> Any:
    def attention(
        module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None, **more: Any
    ) -> tuple[Tensor, None]:
        """The attention interface: q (B H L D), k and v (B G L D), the output B L H D."""
        if q.shape[2] != k.shape[2] or mask is not None:
            raise ValueError(
                f"turned models read whole texts, without a cache or padding; got {q.shape[2]} queries and "
                f"{k.shape[2]} keys"
            )
        scale = q.shape[-1] ** -0.5 if scaling is None else float(scaling)
        window = more.get("sliding_window")
        at = Layout.dense(
            q.shape[2], window=window if window is not None and window < q.shape[2] else None, device=q.device
        )
        enc = encodings.get(module.layer_idx, Encoding())
        besides = extras(module, scale, more)
        return attend(q, k, v, enc if not besides.points else enc + besides, at=at, scale=scale).transpose(1, 2), None

    return attention


class Nudged(Encoding):
    """``enc`` at positions that are ``by`` of themselves too large."""

    def __init__(self, enc: Encoding, by: float):
        super().__init__()
        self.enc, self.by = enc, 1 + by

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.enc.query(q, pos.double() * self.by)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.enc.key(k, pos.double() * self.by)


def prove(model: Any, config: dict[str, Any], own: Mapping[int, Encoding]) -> float:
    """How far logits move when the model is turned by its own ropes; ConfigError where that is more than rounding
    explains."""
    case = Case(model, config)
    case.length = PROOF  # rounding is then that of a text as long
    plain = case.logits(case.text)
    with turned(model, own):
        ours = case.logits(case.text)
    with turned(model, {}):
        none = case.logits(case.text)
    bases = [enc.base for enc in own.values() if isinstance(enc, RoPE)]
    with turned(
        model,
        {
            n: enc if turns_by_length(enc) else Nudged(enc, (16 + math.log(max(bases, default=1.0))) * 2**-24)
            for n, enc in own.items()
        },
    ):
        nudged = case.logits(case.text)
    off, may, control = apart(ours, plain), case.tolerance + apart(nudged, ours), apart(none, plain)
    if not off <= may:
        raise ConfigError(
            f"{type(model).__name__} can't be turned by milepost: with its own ropes logits move by {off:.3g}, and "
            f"rounding explains {may:.3g}"
        )
    if not control > may:
        raise ConfigError(
            f"{type(model).__name__}: logits without any rotation are the same up to rounding ({control:.3g}), so "
            "nothing can be measured here"
        )
    return off
